use lockgate_webhook::webhook;

struct Hook;

#[webhook(name = "things.policy.example.com")]
impl Clone for Hook {
    fn clone(&self) -> Self {
        Self
    }
}

fn main() {}
