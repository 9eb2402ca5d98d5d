//! The client and the handshake against a real gRPC server, in paused time.

mod calls;
mod fixture;
mod generations;
mod handshake;
