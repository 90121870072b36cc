//! The real Helm: a release from its first installation to its end.

use crate::runner::check;
use crate::tools::helm;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases() {
    check("helm", &[helm()]).await;
}
