//! Notes: the data of the node of a hold.

use lockkit_core::contract::Ticket;
use zookeeper_client::Error;

use crate::error::{Result, of_request};
use crate::shared::Shared;

impl Shared {
    /// Gives a hold a note. Returns whether the ticket holds.
    pub(crate) async fn note(&self, ticket: &Ticket, text: &str) -> Result<bool> {
        let contender = self.contender(ticket.holder);
        let Some(contender) = contender.filter(|it| !it.session.has_ended()) else {
            return Ok(false);
        };
        let Some(path) = contender.held_path() else {
            return Ok(false);
        };
        let session = &contender.session;
        session.connected("note").await?;
        let data = self.keys.data(ticket, Some(text));
        match session.client.set_data(&path, data.as_bytes(), None).await {
            Ok(_) => Ok(true),
            Err(Error::NoNode | Error::SessionExpired) => Ok(false),
            Err(error) => Err(of_request("note", &error)),
        }
    }
}
