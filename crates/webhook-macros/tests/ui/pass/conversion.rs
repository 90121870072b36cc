use lockgate_webhook::{Conversion, Fault, Hub, Spoke, conversion};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct Note;

#[derive(Deserialize, Serialize)]
struct NoteV2;

#[conversion(resource = notes, path = "/convert-notes", review_versions(v1, v1beta1), service_port = 8443)]
impl Hub for Note {
    const KIND: &str = "Note";
    const API_VERSION: &str = "notes.example.com/v1";
}

impl Spoke for NoteV2 {
    type Hub = Note;
    const API_VERSION: &str = "notes.example.com/v2";

    fn to_hub(self) -> Result<Note, Fault> {
        Ok(Note)
    }

    fn from_hub(_: Note) -> Result<Self, Fault> {
        Ok(Self)
    }
}

fn main() {
    let notes = Conversion::from(Conversion::marked::<Note>().spoke::<NoteV2>());
    assert_eq!(notes.definition_name(), "notes.notes.example.com");
    assert_eq!(notes.path(), "/convert-notes");
    assert_eq!(notes.review_versions(), ["v1", "v1beta1"]);
}
