//! Error messages in the format of Go's libraries.

/// One error is formatted unchanged, several in brackets, and duplicates once.
// UPSTREAM: apimachinery pkg/util/errors/errors.go (aggregate.Error).
pub(crate) fn aggregate(errors: Vec<String>) -> Option<String> {
    let mut told: Vec<String> = Vec::with_capacity(errors.len());
    for error in errors {
        if !told.contains(&error) {
            told.push(error);
        }
    }
    match told.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => Some(format!("[{}]", many.join(", "))),
    }
}
