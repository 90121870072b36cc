//! What unit tests share.

use std::sync::Arc;

use lockgate_api::registration::hub::ClientConfig;

use crate::call::{Caller, Client, ClientError};

/// Reaches nobody.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NoCaller;

impl Caller for NoCaller {
    fn client(&self, _: &ClientConfig) -> Result<Arc<dyn Client>, ClientError> {
        Err(ClientError(String::from("nobody is reached here")))
    }
}
