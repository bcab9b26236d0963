//! Every sentence of the rules, at least one test each; properties; and a made-up cluster over time.

mod cases;
mod demand;
mod down;
mod growth;
mod properties;
mod protection;
mod reasons;
mod simulation;
pub mod stage;
mod up;
mod wake;
