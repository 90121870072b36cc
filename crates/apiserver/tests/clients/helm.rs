//! The real Helm: a release from installation to uninstallation.

use crate::runner::check;
use crate::tools::helm;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases() {
    check("helm", &[helm()]).await;
}
