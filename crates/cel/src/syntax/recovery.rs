//! Reports the syntax errors of an expression.
//!
//! Runs the grammar like ANTLR's generated parser, with its error recovery (skipped and inserted
//! tokens, resynchronisation), for the same error messages as Kubernetes. It runs only for
//! expressions with syntax errors.
//!
//! UPSTREAM: antlr4-go error_strategy.go, cel-go parser/parser.go

use std::collections::BTreeSet;

use super::grammar::{
    EPSILON, Edge, NETWORK, RULES, Rule, StateId, StateKind, Step, TokenSet, bit, start,
};
use super::lexer::{Kind, Token};
use super::predict::{Predictor, Undecided};
use super::visit::{RunId, Tree, recovered_issues};
use crate::limits::MAX_DEPTH;
use crate::source::Issue;

const MAX_REPORTS: usize = 100;
const MAX_RECOVERIES: usize = 30;
const MAX_SKIPPED: usize = 256;

/// The issues of `source`: its syntax errors in order, then the issues of the recovered tree.
pub(super) fn errors(source: &str, tokens: &[Token], lexical: Vec<Issue>) -> Vec<Issue> {
    let mut run = Recovery {
        source,
        tokens,
        next: 0,
        state: start(Rule::Start),
        tasks: Vec::new(),
        callers: Vec::new(),
        precedence: 0,
        depth: [0; RULES],
        recovering: false,
        last_error: None,
        error_states: BTreeSet::new(),
        recoveries: 0,
        skipped: None,
        predictor: Predictor::default(),
        tree: Tree::default(),
        run: 0,
        unread: lexical.iter().filter_map(unread).collect(),
        reports: lexical.len().min(MAX_REPORTS),
        issues: lexical,
    };
    // After an abort, the error is already reported.
    if let Ok(start) = run.parse() {
        let more = recovered_issues(source, tokens, &run.tree, start);
        run.issues.extend(more);
    }
    run.issues
}

/// The byte range of a lexer issue.
fn unread(issue: &Issue) -> Option<(usize, usize)> {
    let from = issue.offset? as usize;
    let text = issue
        .message
        .strip_prefix(super::lexer::UNRECOGNIZED)?
        .strip_suffix('\'')?;
    Some((from, from + text.len()))
}

/// Parsing was abandoned.
struct Abort;

/// The reason why a rule failed.
enum Failure {
    Mismatch { state: StateId },
    NoAlternative { start: usize, offending: usize },
    Abort,
}

impl From<Abort> for Failure {
    fn from(_: Abort) -> Self {
        Self::Abort
    }
}

/// Pending work.
enum Task {
    Steps(&'static [Step]),
    /// The end of an iteration of this loop.
    Again(&'static Step),
    /// The end of a rule.
    Leave(Outer),
}

/// The state of the calling rule, restored at the end.
struct Outer {
    /// The rule that ends.
    rule: Rule,
    precedence: u8,
    run: RunId,
}

struct Recovery<'s, 't> {
    source: &'s str,
    tokens: &'t [Token],
    next: usize,
    state: StateId,
    /// The pending tasks, the next one last. Sources nest too deeply for recursion.
    tasks: Vec<Task>,
    /// The states of the active calls, outermost first.
    callers: Vec<StateId>,
    precedence: u8,
    depth: [u32; RULES],
    recovering: bool,
    last_error: Option<usize>,
    error_states: BTreeSet<StateId>,
    recoveries: usize,
    /// Tokens skipped in the current recovery.
    skipped: Option<usize>,
    predictor: Predictor,
    /// The tree parsed so far, and the current rule node.
    tree: Tree,
    run: RunId,
    /// Byte ranges of the source without a token.
    unread: Vec<(usize, usize)>,
    reports: usize,
    issues: Vec<Issue>,
}

impl Recovery<'_, '_> {
    fn token(&self, at: usize) -> Token {
        let end = self.source.len() as u32;
        let last = Token {
            kind: Kind::Eof,
            start: end,
            end,
        };
        self.tokens.get(at).copied().unwrap_or(last)
    }

    fn la(&self, ahead: usize) -> Kind {
        self.token(self.next + ahead - 1).kind
    }

    fn consume(&mut self) -> Result<(), Abort> {
        if let Some(skipped) = &mut self.skipped {
            if *skipped >= MAX_SKIPPED {
                self.issues.push(Issue::whole(format!(
                    "error recovery token lookahead limit exceeded: {MAX_SKIPPED}"
                )));
                return Err(Abort);
            }
            *skipped += 1;
        }
        if self.la(1) != Kind::Eof {
            self.next += 1;
        }
        Ok(())
    }

    fn report(&mut self, at: Token, message: &str) -> Result<(), Abort> {
        let place = |text: String| Issue::at(at.start, format!("Syntax error: {text}"));
        if self.reports >= MAX_REPORTS {
            self.issues
                .push(place(format!("More than {MAX_REPORTS} syntax errors")));
            return Err(Abort);
        }
        self.reports += 1;
        self.issues.push(place(message.to_owned()));
        Ok(())
    }

    fn display(&self, token: Token) -> String {
        let text = if token.kind == Kind::Eof {
            "<EOF>"
        } else {
            token.text(self.source)
        };
        quote(text)
    }

    /// Runs the grammar; errors inside a rule are reported and recovered from at its end.
    fn parse(&mut self) -> Result<RunId, Abort> {
        self.enter(Rule::Start, 0)?;
        let mut done = self.run;
        while let Some(task) = self.tasks.pop() {
            let outcome = match task {
                Task::Steps(steps) => self.steps(steps),
                Task::Again(step) => self.again(step),
                Task::Leave(outer) => {
                    done = self.leave(&outer);
                    Ok(())
                }
            };
            match outcome {
                Ok(()) => {}
                Err(Failure::Abort) => return Err(Abort),
                Err(failure) => {
                    self.report_failure(&failure)?;
                    self.recover()?;
                    while let Some(Task::Steps(_) | Task::Again(_)) = self.tasks.last() {
                        self.tasks.pop();
                    }
                }
            }
        }
        Ok(done)
    }

    fn enter(&mut self, rule: Rule, precedence: u8) -> Result<(), Abort> {
        let begun = self.tree.begin(rule, self.token(self.next).start);
        let outer = Outer {
            rule,
            precedence: std::mem::replace(&mut self.precedence, precedence),
            run: std::mem::replace(&mut self.run, begun),
        };
        if let Some(depth) = self.depth.get_mut(rule as usize) {
            *depth += 1;
            if *depth > MAX_DEPTH {
                self.issues.push(Issue::whole(format!(
                    "expression recursion limit exceeded: {MAX_DEPTH}"
                )));
                return Err(Abort);
            }
        }
        self.tasks.push(Task::Leave(outer));
        self.tasks.push(Task::Steps(NETWORK.body(rule)));
        Ok(())
    }

    /// Returns to the caller of a rule, if any.
    fn leave(&mut self, outer: &Outer) -> RunId {
        if let Some(depth) = self.depth.get_mut(outer.rule as usize) {
            *depth -= 1;
        }
        self.precedence = outer.precedence;
        let done = std::mem::replace(&mut self.run, outer.run);
        if self.callers.pop().is_some() {
            self.tree.attach(self.run, done);
        }
        done
    }

    /// Runs the first of several steps; the others are queued.
    fn steps(&mut self, steps: &'static [Step]) -> Result<(), Failure> {
        let Some((first, rest)) = steps.split_first() else {
            return Ok(());
        };
        if !rest.is_empty() {
            self.tasks.push(Task::Steps(rest));
        }
        self.step(first)
    }

    fn step(&mut self, step: &'static Step) -> Result<(), Failure> {
        match step {
            Step::Tokens { state, set } => {
                self.state = *state;
                self.match_tokens(*set)
            }
            Step::Call {
                state,
                rule,
                precedence,
            } => {
                self.state = *state;
                self.callers.push(*state);
                Ok(self.enter(*rule, *precedence)?)
            }
            Step::Optional { state, first, body } => {
                self.sync(*state)?;
                if first & bit(self.la(1)) != 0 {
                    self.tasks.push(Task::Steps(body));
                }
                Ok(())
            }
            Step::Star1 { entry, .. } | Step::Star { entry, .. } => {
                self.sync(*entry)?;
                self.round(step)
            }
            Step::Plus { block, body, .. } => {
                self.sync(*block)?;
                self.repeat(step, body);
                Ok(())
            }
            Step::Choice {
                state,
                first,
                bodies,
            } => {
                self.sync(*state)?;
                let chosen = match first {
                    None => self.predict(*state)?,
                    Some(first) => {
                        let next = bit(self.la(1));
                        let fits = first.iter().position(|set| set & next != 0);
                        fits.map(|at| at + 1).ok_or(Failure::NoAlternative {
                            start: self.next,
                            offending: self.next,
                        })?
                    }
                };
                self.tree.choose(self.run, chosen);
                if let Some(body) = bodies.get(chosen - 1) {
                    self.tasks.push(Task::Steps(body));
                }
                Ok(())
            }
        }
    }

    /// Ends an iteration of a loop and starts the next one, if any.
    fn again(&mut self, step: &'static Step) -> Result<(), Failure> {
        if let Step::Star1 { back, .. } | Step::Star { back, .. } | Step::Plus { back, .. } = step {
            self.sync(*back)?;
        }
        self.round(step)
    }

    /// Starts an iteration of a loop, unless the loop is complete.
    fn round(&mut self, step: &'static Step) -> Result<(), Failure> {
        match step {
            Step::Star1 { first, body, .. } => {
                if first & bit(self.la(1)) != 0 {
                    self.repeat(step, body);
                }
            }
            Step::Star {
                entry,
                block,
                bodies,
                ..
            } => {
                if self.predict(*entry)? != 1 {
                    return Ok(());
                }
                let chosen = if bodies.len() > 1 {
                    self.sync(*block)?;
                    self.predict(*block)?
                } else {
                    1
                };
                if let Rule::Relation | Rule::Calc | Rule::Member = NETWORK.state(*entry).rule {
                    self.run = self.tree.wrap(self.run, chosen);
                }
                let body = bodies.get(chosen - 1).map_or(&[][..], Vec::as_slice);
                self.repeat(step, body);
            }
            Step::Plus {
                back, first, body, ..
            } => {
                let again = match first {
                    Some(first) => first & bit(self.la(1)) != 0,
                    None => self.predict(*back)? == 1,
                };
                if again {
                    self.repeat(step, body);
                }
            }
            Step::Tokens { .. }
            | Step::Call { .. }
            | Step::Optional { .. }
            | Step::Choice { .. } => {}
        }
        Ok(())
    }

    fn repeat(&mut self, step: &'static Step, body: &'static [Step]) {
        self.tasks.push(Task::Again(step));
        self.tasks.push(Task::Steps(body));
    }

    fn predict(&mut self, choice: StateId) -> Result<usize, Failure> {
        let follows = self.callers.iter().filter_map(|state| follow_of(*state));
        let predicted =
            self.predictor
                .predict(choice, self.precedence, follows, self.tokens, self.next);
        predicted.map_err(|undecided| match undecided {
            Undecided::NoAlternative { offending } => Failure::NoAlternative {
                start: self.next,
                offending,
            },
            Undecided::TooHard => self.give_up(),
        })
    }

    /// Stops the error recovery; the expression is rejected regardless.
    fn give_up(&mut self) -> Failure {
        if self.issues.is_empty() {
            let token = self.token(self.next);
            let text = format!(
                "Syntax error: no viable alternative at input {}",
                self.display(token)
            );
            self.issues.push(Issue::at(token.start, text));
        }
        Failure::Abort
    }

    fn match_tokens(&mut self, set: TokenSet) -> Result<(), Failure> {
        if set & bit(self.la(1)) != 0 {
            self.matched();
            self.tree.read(self.run, self.token(self.next));
            self.consume()?;
            return Ok(());
        }
        self.attempt()?;
        self.skipped = Some(0);
        let outcome = self.recover_inline();
        self.skipped = None;
        outcome
    }

    fn matched(&mut self) {
        self.recovering = false;
        self.error_states.clear();
        self.last_error = None;
    }

    /// Counts a recovery, and aborts after too many.
    fn attempt(&mut self) -> Result<(), Abort> {
        if self.recoveries == MAX_RECOVERIES {
            self.recoveries += 1;
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.report(self.token(self.next), &message)?;
            return Err(Abort);
        }
        self.recoveries += 1;
        Ok(())
    }

    fn recover_inline(&mut self) -> Result<(), Failure> {
        if self.delete_token()? {
            self.tree.read(self.run, self.token(self.next));
            self.consume()?;
            return Ok(());
        }
        if self.insert_token()? {
            return Ok(());
        }
        Err(Failure::Mismatch { state: self.state })
    }

    /// Single-token deletion: skips one token if the next one is expected.
    fn delete_token(&mut self) -> Result<bool, Abort> {
        if self.expected(self.state) & bit(self.la(2)) == 0 {
            return Ok(false);
        }
        self.report_unwanted()?;
        self.consume()?;
        self.matched();
        Ok(true)
    }

    /// Single-token insertion: assumes the expected token if the current one can follow it.
    fn insert_token(&mut self) -> Result<bool, Abort> {
        let after = match NETWORK.state(self.state).edges.first() {
            Some(Edge::Tokens(_, to)) => *to,
            _ => return Ok(false),
        };
        if self.expected(after) & bit(self.la(1)) == 0 {
            return Ok(false);
        }
        if !self.recovering {
            self.recovering = true;
            let token = self.token(self.next);
            let expecting = list(self.expected(self.state));
            let message = format!("missing {expecting} at {}", self.display(token));
            self.report(token, &message)?;
        }
        self.tree.miss(self.run, self.missing());
        Ok(true)
    }

    /// The missing token, at the position of the current one.
    fn missing(&self) -> Token {
        let mut place = self.token(self.next);
        if place.kind == Kind::Eof && self.next > 0 {
            place = self.token(self.next - 1);
        }
        let expected = self.expected(self.state);
        let kind = Kind::ALL
            .into_iter()
            .find(|kind| expected & bit(*kind) != 0);
        Token {
            kind: kind.unwrap_or(Kind::Eof),
            ..place
        }
    }

    fn report_unwanted(&mut self) -> Result<(), Abort> {
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        let token = self.token(self.next);
        let expecting = list(self.expected(self.state));
        let message = format!(
            "extraneous input {} expecting {expecting}",
            self.display(token)
        );
        self.report(token, &message)
    }

    fn report_failure(&mut self, failure: &Failure) -> Result<(), Abort> {
        if self.recovering {
            return Ok(());
        }
        self.recovering = true;
        match failure {
            Failure::Abort => Err(Abort),
            Failure::Mismatch { state } => {
                let token = self.token(self.next);
                let expecting = list(self.expected(*state));
                let message = format!(
                    "mismatched input {} expecting {expecting}",
                    self.display(token)
                );
                self.report(token, &message)
            }
            Failure::NoAlternative { start, offending } => {
                let (first, last) = (self.token(*start), self.token(*offending));
                let text = if first.kind == Kind::Eof {
                    "<EOF>".to_owned()
                } else {
                    self.text_between(first, last)
                };
                let message = format!("no viable alternative at input {}", quote(&text));
                self.report(last, &reserved_as_mismatch(message))
            }
        }
    }

    /// The source from one token to another, without unrecognised characters.
    fn text_between(&self, first: Token, last: Token) -> String {
        let mut text = String::new();
        let mut at = first.start as usize;
        let end = last.end as usize;
        for (from, to) in &self.unread {
            if *from >= at && *to <= end {
                text.push_str(self.source.get(at..*from).unwrap_or_default());
                at = *to;
            }
        }
        text.push_str(self.source.get(at..end).unwrap_or_default());
        text
    }

    /// Skips to a token that one of the active rules can continue with.
    fn recover(&mut self) -> Result<(), Abort> {
        self.attempt()?;
        self.skipped = Some(0);
        if self.last_error == Some(self.next) && self.error_states.contains(&self.state) {
            // No token was consumed since the last error here: consume one to guarantee progress.
            self.consume()?;
        }
        self.last_error = Some(self.next);
        self.error_states.insert(self.state);
        self.skip_until(self.recovery_set())?;
        self.skipped = None;
        Ok(())
    }

    fn recovery_set(&self) -> TokenSet {
        let follows = self.callers.iter().filter_map(|state| follow_of(*state));
        follows.fold(0, |set, follow| set | NETWORK.next_tokens(follow)) & !EPSILON
    }

    fn skip_until(&mut self, set: TokenSet) -> Result<(), Abort> {
        while self.la(1) != Kind::Eof && set & bit(self.la(1)) == 0 {
            self.consume()?;
        }
        Ok(())
    }

    /// Checks that the next token is expected before a decision or another iteration.
    fn sync(&mut self, state: StateId) -> Result<(), Failure> {
        self.state = state;
        if self.recovering {
            return Ok(());
        }
        let next = NETWORK.next_tokens(state);
        if next & (EPSILON | bit(self.la(1))) != 0 {
            return Ok(());
        }
        match NETWORK.state(state).kind {
            StateKind::Choice => {
                if self.delete_token()? {
                    return Ok(());
                }
                Err(Failure::Mismatch { state })
            }
            StateKind::LoopBack => {
                self.report_unwanted()?;
                let set = self.expected(state) | self.recovery_set();
                Ok(self.skip_until(set)?)
            }
            StateKind::Basic | StateKind::RuleStop => Ok(()),
        }
    }

    /// All tokens that can come next, including after the ends of rules.
    fn expected(&self, state: StateId) -> TokenSet {
        let mut following = NETWORK.next_tokens(state);
        let mut expected = following & !EPSILON;
        for caller in self.callers.iter().rev() {
            if following & EPSILON == 0 {
                break;
            }
            following = follow_of(*caller).map_or(0, |f| NETWORK.next_tokens(f));
            expected |= following & !EPSILON;
        }
        if following & EPSILON != 0 {
            expected | bit(Kind::Eof)
        } else {
            expected
        }
    }
}

/// The follow state of a calling state.
fn follow_of(state: StateId) -> Option<StateId> {
    match NETWORK.state(state).edges.first() {
        Some(Edge::Call { follow, .. }) => Some(*follow),
        _ => None,
    }
}

fn quote(text: &str) -> String {
    format!(
        "'{}'",
        text.replace('\t', "\\t")
            .replace('\n', "\\n")
            .replace('\r', "\\r")
    )
}

/// The expected tokens as a list in braces, or a single one without.
fn list(set: TokenSet) -> String {
    let names: Vec<_> = Kind::ALL
        .into_iter()
        .filter(|k| set & bit(*k) != 0)
        .map(Kind::display)
        .collect();
    match names.as_slice() {
        [only] => (*only).to_owned(),
        _ => format!("{{{}}}", names.join(", ")),
    }
}

/// Reports a literal in place of a name as a mismatch.
fn reserved_as_mismatch(message: String) -> String {
    const PREFIX: &str = "no viable alternative at input '";
    for word in ["true", "false", "null"] {
        if let Some(rest) = message.strip_prefix(PREFIX)
            && let Some((first, tail)) =
                rest.split_at_checked(rest.chars().next().map_or(0, char::len_utf8))
            && !first.is_empty()
            && tail.strip_suffix('\'') == Some(word)
        {
            return format!("mismatched input '{word}' expecting IDENTIFIER");
        }
    }
    message
}
