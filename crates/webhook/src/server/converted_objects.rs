//! Metrics and the log line of a conversion. As with decisions, no object data is logged.

use std::time::Duration;

use super::metrics::Metrics;
use crate::conversion::Converted;
use crate::review::ReviewError;
use crate::webhooks::Conversions;

pub(super) fn record(
    metrics: &Metrics,
    conversions: &Conversions,
    converted: &Converted,
    took: Duration,
) {
    metrics.converted(conversions.path(), converted, took);
    let uid = converted.uid.as_deref().unwrap_or_default();
    let ms = took.as_secs_f64() * 1000.0;
    let path = conversions.path();
    match &converted.outcome {
        Ok(groups) => {
            let objects: u64 = groups.iter().map(|group| group.count).sum();
            let first = groups.first();
            tracing::info!(
                path,
                uid = super::decision::truncate(uid),
                objects,
                kind = first.map(|group| group.kind),
                from = first.map(|group| group.from),
                to = first.map(|group| group.to),
                ms,
                "converted"
            );
        }
        Err(ReviewError::Malformed(error)) => {
            let error = super::decision::truncate(error);
            tracing::warn!(path, error, ms, "malformed ConversionReview");
        }
        Err(error) => {
            let error = error.to_string();
            let error = super::decision::truncate(&error);
            let uid = super::decision::truncate(uid);
            tracing::error!(path, uid, error, ms, "conversion failed");
        }
    }
}
