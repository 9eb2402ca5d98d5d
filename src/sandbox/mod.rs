//! A cluster and a driver inside this process, for the `sandbox` verb, tests and the simulation.

pub mod api;
