//! Recorded requests as AdmissionReviews, one per line.

use serde_json::{Value, json};

use crate::record::Record;

/// The review of a record with the original object; `None` for records without objects.
pub(crate) fn review(record: &Record) -> Option<Value> {
    let mut detail: Value = serde_json::from_str(&record.detail).ok()?;
    if detail.get("objectsOmitted").is_some() {
        return None;
    }
    let mut request = detail.get_mut("request")?.take();
    let mut take = |name: &str| detail.get_mut(name).map_or(Value::Null, Value::take);
    // The request number is what users search for in the console; it makes the uid unique.
    request["uid"] = json!(format!(
        "00000000-0000-4000-8000-{:012x}",
        take("n").as_u64()?
    ));
    for name in ["object", "oldObject", "options"] {
        request[name] = take(name);
    }
    Some(
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_has_the_objects_as_they_came() {
        let detail = json!({"n": 26, "request": {"operation": "CREATE"}, "object": {"a": 1}, "oldObject": null, "options": {}, "finalObject": {"a": 2}});
        let record = Record {
            summary: String::new(),
            detail: detail.to_string(),
        };
        let review = review(&record).unwrap();
        assert_eq!(review["kind"], "AdmissionReview");
        assert_eq!(
            review["request"],
            json!({"uid": "00000000-0000-4000-8000-00000000001a", "operation": "CREATE", "object": {"a": 1}, "oldObject": null, "options": {}})
        );
    }

    #[test]
    fn there_is_none_without_objects() {
        let detail = json!({"n": 1, "request": {}, "objectsOmitted": true});
        let record = Record {
            summary: String::new(),
            detail: detail.to_string(),
        };
        assert_eq!(review(&record), None);
    }
}
