# Build from the repository's root: docker build -t poolkeeper:dev .
# Without a container engine, hack/images/build makes an image too.

# Both stages are Debian 12, so that the program finds the glibc it was linked with.
FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY src src
COPY lua lua
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin poolkeeper \
    && cp target/release/poolkeeper /poolkeeper

# glibc, libgcc, CA certificates, and users: no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
COPY --from=build /poolkeeper /usr/local/bin/poolkeeper
# By number: the kubelet cannot tell whether a name is root (runAsNonRoot).
USER 65532:65532
EXPOSE 8080
ENTRYPOINT ["/usr/local/bin/poolkeeper"]
