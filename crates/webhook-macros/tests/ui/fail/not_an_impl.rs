use lockgate_webhook::webhook;

#[webhook(name = "things.policy.example.com")]
struct Hook;

fn main() {}
