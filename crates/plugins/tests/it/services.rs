//! External IPs.

use lockgate_plugins::{DenyServiceExternalIPs, ExternalIPRanger, config};
use serde_json::{Value, json};

use crate::kit::{Asked, forbidden, validate};

fn service(addresses: &[&str]) -> Value {
    json!({"metadata": {"name": "x"}, "spec": {"externalIPs": addresses}})
}

fn create(addresses: &[&str]) -> Asked {
    Asked::new("CREATE", "services", "Service").object(service(addresses))
}

fn update(old: &[&str], new: &[&str]) -> Asked {
    Asked::new("UPDATE", "services", "Service")
        .object(service(new))
        .old(service(old))
}

#[tokio::test]
async fn no_new_address_is_claimed() {
    let refused = Err(forbidden(
        "Use of external IPs is denied by admission control",
    ));
    for (asked, want) in [
        (create(&[]), Ok(())),
        (create(&["1.2.3.4"]), refused.clone()),
        (update(&["1.2.3.4", "1.2.3.5"], &["1.2.3.5"]), Ok(())),
        (update(&["1.2.3.4"], &["1.2.3.4", "1.2.3.5"]), refused),
    ] {
        assert_eq!(validate(&DenyServiceExternalIPs, &asked).await, want);
    }
}

#[tokio::test]
async fn addresses_come_from_their_networks() {
    let plugin = |list: &str| {
        let config = config::read(&format!("externalIPNetworkCIDRs: {list}")).unwrap();
        ExternalIPRanger::new(&config).unwrap()
    };
    let ranges = plugin("[10.0.0.0/8, '!10.1.0.0/16', 'fd00::/8', 8.8.8.8/32]");
    let refused = |text: &str| Err((422, text.to_owned()));
    for (asked, want) in [
        (create(&[]), Ok(())),
        (create(&["10.2.0.1", "fd00::1", "8.8.8.8"]), Ok(())),
        (
            create(&["10.2.0.1", "10.1.0.1"]),
            refused("spec.externalIPs[1]: Forbidden: externalIP is not allowed"),
        ),
        (
            create(&["8.8.8.9"]),
            refused("spec.externalIPs[0]: Forbidden: externalIP is not allowed"),
        ),
        (
            create(&["house"]),
            refused(
                "spec.externalIPs[0]: Invalid value: \"house\": externalIPs must be a valid address",
            ),
        ),
        (update(&["9.9.9.9"], &["9.9.9.9"]), Ok(())),
    ] {
        assert_eq!(validate(&ranges, &asked).await, want);
    }
    let none = plugin("[]");
    let disabled = refused("spec.externalIPs: Forbidden: externalIPs have been disabled");
    assert_eq!(
        validate(&none, &create(&["1.2.3.4", "1.2.3.5"])).await,
        disabled
    );
    assert_eq!(
        validate(&plugin("[0.0.0.0/0]"), &create(&["1.2.3.4"])).await,
        Ok(())
    );
    for wrong in ["10.0.0.0", "10.0.0.0/33", "fd00::/129", "x/8"] {
        let config = config::read(&format!("externalIPNetworkCIDRs: ['{wrong}']")).unwrap();
        let error = ExternalIPRanger::new(&config).unwrap_err();
        assert_eq!(error.to_string(), format!("`{wrong}` is not a network"));
    }
}
