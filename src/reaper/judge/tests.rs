//! Every sentence of "Dead means dead", at least one test each, and properties over made-up histories.

mod certain;
mod output;
mod sharing;
mod silence;
mod simulation;
mod stage;
mod strangers;

use super::Judgement;
use stage::pool;

/// What a judgement says of a pool: the name of its proof, of what would decide, or `living`.
fn named(judgement: &Judgement, name: &str) -> &'static str {
    match (judgement.dead.get(&pool(name)), judgement.undecided.get(&pool(name))) {
        (Some(proof), _) => proof.name(),
        (None, Some(decider)) => decider.name(),
        (None, None) if judgement.living.contains(&pool(name)) => "living",
        (None, None) => "nowhere",
    }
}
