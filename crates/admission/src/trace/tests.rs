use super::*;
use crate::call::Phase;

#[test]
fn knows_certificates_of_old() {
    let failed = |problem: &str| CallOutcome::Failed {
        reason: format!(
            "failed to call webhook: Post \"https://h/\": tls: failed to verify {problem}"
        ),
        code: 503,
        phase: Some(Phase::Tls),
    };
    let sha1 = "certificate: x509: certificate signed by unknown authority (possibly because of \
                \"x509: cannot verify signature: insecure algorithm SHA1-RSA\" while trying to \
                verify candidate authority certificate \"ca\")";
    let md5 = "certificate: x509: cannot verify signature: insecure algorithm MD5-RSA";
    let legacy =
        "certificate: x509: certificate relies on legacy Common Name field, use SANs instead";
    for (outcome, want) in [
        (failed(legacy), Some(LegacyCertificate::MissingSan)),
        (failed(sha1), Some(LegacyCertificate::InsecureSha1)),
        (failed(md5), None),
        (
            failed("certificate: x509: certificate signed by unknown authority"),
            None,
        ),
        (CallOutcome::Allowed, None),
    ] {
        assert_eq!(outcome.legacy_certificate(), want, "{outcome:?}");
    }
}
