//! Coverage: the expressions of policies and webhooks, and their subexpressions, that the cases of a suite evaluate.

use std::collections::{BTreeMap, BTreeSet};

use lockgate_admission::conditions::{ExpressionRole, ExpressionTrace};
use lockgate_api::registration::ConfigurationKind;
use lockgate_api::registration::policy::PolicyKind;
use lockgate_cel::Program;
use lockgate_cel::eval::RecordedOutcome;
use serde::Serialize;

use crate::chain::{Chain, Run};
use crate::explanation::field;

/// The expressions of a suite by their owner and field.
#[derive(Debug, Default)]
pub struct Coverage(BTreeMap<(String, String), Covered>);

#[derive(Debug, Default)]
struct Covered {
    expression: String,
    /// All subexpressions, as byte ranges of the source.
    parts: BTreeSet<(u32, u32)>,
    reached: BTreeSet<(u32, u32)>,
    evaluations: usize,
    /// The results of a condition.
    held: bool,
    failed: bool,
    is_condition: bool,
}

/// The coverage of one expression.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ExpressionCoverage {
    /// The policy or webhook.
    pub owner: String,
    /// The field path of the expression.
    pub field: String,
    /// The expression.
    pub expression: String,
    /// The number of evaluations.
    pub evaluations: usize,
    /// The number of its subexpressions.
    pub parts: usize,
    /// The number of evaluated subexpressions.
    pub reached: usize,
    /// The subexpressions that no case evaluates, only the outermost ones.
    pub missed: Vec<String>,
    /// The result that no case has, for validations and conditions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub never: Option<&'static str>,
}

impl Coverage {
    /// Adds the expressions of a chain.
    pub fn expect(&mut self, chain: &Chain) {
        for kind in PolicyKind::ALL {
            for bound in chain.engine().policies(kind).snapshot().policies() {
                let policy = &bound.policy;
                for (role, index, text, program) in policy.expressions() {
                    let owner = format!("policy {}", policy.name());
                    self.declare(owner, role, index, text, program);
                }
            }
        }
        for kind in [ConfigurationKind::Mutating, ConfigurationKind::Validating] {
            for hook in chain.configurations(kind).snapshot().hooks() {
                for (index, (text, program)) in hook.expressions().enumerate() {
                    let owner = format!("webhook {}", hook.name());
                    let role = ExpressionRole::MatchCondition;
                    self.declare(owner, role, index, text, program);
                }
            }
        }
    }

    fn declare(
        &mut self,
        owner: String,
        role: ExpressionRole,
        index: usize,
        text: &str,
        program: Option<&Program>,
    ) {
        let covered = self.0.entry((owner, field(role, index))).or_default();
        if covered.expression != text {
            *covered = Covered {
                expression: text.to_owned(),
                ..Covered::default()
            };
        }
        covered.is_condition = matches!(
            role,
            ExpressionRole::MatchCondition | ExpressionRole::Validation
        );
        let parts = program.into_iter().flat_map(Program::parts);
        covered
            .parts
            .extend(parts.map(|span| (span.start, span.end)));
    }

    /// Adds the evaluations of a run.
    pub fn add(&mut self, run: &Run) {
        for (_, plugin) in run.admission.trace().plugins() {
            for policy in &plugin.policies {
                let owner = format!("policy {}", policy.policy.name());
                for binding in &policy.bindings {
                    for evaluation in &binding.evaluations {
                        let conditions = evaluation.conditions.iter();
                        let conditions = conditions.flat_map(|it| &it.expressions);
                        for trace in conditions.chain(&evaluation.expressions) {
                            self.reach(&owner, trace);
                        }
                    }
                }
            }
            for hook in &plugin.hooks {
                let owner = format!("webhook {}", hook.hook.name());
                for trace in hook.conditions.iter().flat_map(|it| &it.expressions) {
                    self.reach(&owner, trace);
                }
            }
        }
    }

    fn reach(&mut self, owner: &str, trace: &ExpressionTrace) {
        let key = (owner.to_owned(), field(trace.role, trace.index));
        let Some(covered) = self.0.get_mut(&key) else {
            return;
        };
        covered.evaluations += 1;
        match &trace.recorded.outcome {
            RecordedOutcome::Value(value) if value == "true" => covered.held = true,
            RecordedOutcome::Value(_) => covered.failed = true,
            RecordedOutcome::Error(_) => {}
        }
        let steps = trace.recorded.recording.steps.iter();
        covered
            .reached
            .extend(steps.map(|step| (step.span.start, step.span.end)));
    }

    /// The coverage of each expression, in order.
    #[must_use]
    pub fn report(&self) -> Vec<ExpressionCoverage> {
        let all = self.0.iter();
        all.map(|((owner, field), covered)| {
            let missed: Vec<(u32, u32)> = covered
                .parts
                .difference(&covered.reached)
                .copied()
                .collect();
            // A subexpression of one that was missed adds no information.
            let outermost = missed.iter().filter(|(start, end)| {
                let within = |(from, to): &(u32, u32)| {
                    from <= start && end <= to && (from, to) != (start, end)
                };
                !missed.iter().any(within)
            });
            let text = |(start, end): &(u32, u32)| {
                let part = covered.expression.get(*start as usize..*end as usize);
                part.unwrap_or_default().to_owned()
            };
            let never = match (covered.held, covered.failed) {
                _ if !covered.is_condition || covered.evaluations == 0 => None,
                (true, false) => Some("false"),
                (false, true) => Some("true"),
                _ => None,
            };
            ExpressionCoverage {
                owner: owner.clone(),
                field: field.clone(),
                expression: covered.expression.clone(),
                evaluations: covered.evaluations,
                parts: covered.parts.len(),
                reached: covered.parts.len() - missed.len(),
                missed: outermost.map(text).collect(),
                never,
            }
        })
        .collect()
    }
}
