# One build, one small image per program: `docker build --target hook-worker .`; without a target,
# the image of `hook`, which migrates, enqueues and looks after jobs.
#
# The images hold the program, `hook` for the health check, CA certificates and glibc: no shell, no
# package manager, no root. Programs run as process 1 and drain on SIGTERM, so give them longer than
# HOOK_SHUTDOWN_GRACE before they are killed (`docker stop --time 30`).

# Both of Debian 12, so that the programs find the glibc that they were linked with.
ARG BUILD_IMAGE=rust:1.95.0-slim-bookworm
ARG RUN_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS build
WORKDIR /src
COPY . .
# The caches outlive the build; what it made is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --package hook --package hook-api --package hook-worker \
        --package hook-janitor \
    && mkdir /out \
    && cp target/release/hook target/release/hook-api target/release/hook-worker \
        target/release/hook-janitor /out/

FROM ${RUN_IMAGE} AS base
COPY --from=build /out/hook /usr/local/bin/hook
# By number: Kubernetes' runAsNonRoot cannot tell who a name is.
USER 65532:65532
# The check asks the ops listener on loopback: /readyz, within 2 s.
HEALTHCHECK --interval=10s --timeout=5s --start-period=30s --retries=3 \
    CMD ["/usr/local/bin/hook", "health"]

FROM base AS hook-api
COPY --from=build /out/hook-api /usr/local/bin/hook-api
ENV HOOK_OPS_LISTEN=0.0.0.0:3310 HOOK_API_LISTEN=0.0.0.0:3300
EXPOSE 3300 3310
ENTRYPOINT ["/usr/local/bin/hook-api"]

FROM base AS hook-worker
COPY --from=build /out/hook-worker /usr/local/bin/hook-worker
ENV HOOK_OPS_LISTEN=0.0.0.0:3311
EXPOSE 3311
ENTRYPOINT ["/usr/local/bin/hook-worker"]

FROM base AS hook-janitor
COPY --from=build /out/hook-janitor /usr/local/bin/hook-janitor
ENV HOOK_OPS_LISTEN=0.0.0.0:3312
EXPOSE 3312
ENTRYPOINT ["/usr/local/bin/hook-janitor"]

# A command that ends is neither healthy nor ill.
FROM base AS hook
HEALTHCHECK NONE
ENTRYPOINT ["/usr/local/bin/hook"]
CMD ["--help"]
