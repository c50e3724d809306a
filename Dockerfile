# odmoe in a container: main, shadow, worker and the commands are one image (docs/containers.md).
#   docker build -t odmoe .
#   docker run --rm odmoe demo
# scripts/check-container.mjs runs these steps without a container engine, and understands FROM, ARG, ENV, WORKDIR, COPY, RUN, USER, VOLUME,
# EXPOSE, STOPSIGNAL, HEALTHCHECK, ENTRYPOINT and CMD as they are used here.

FROM node:20-bookworm-slim AS build
WORKDIR /opt/odmoe
RUN apt-get update \
  && apt-get install -y --no-install-recommends g++ cmake make libzstd-dev liblz4-dev liburing-dev ca-certificates \
  && rm -rf /var/lib/apt/lists/*
COPY package.json package-lock.json ./
RUN npm ci --include=dev --no-audit --no-fund
COPY . .
# The CUDA library needs nvcc: for GPUs take an image of NVIDIA's with nvcc and Node as the base of this stage, and say ODMOE_CUDA=on.
ARG ODMOE_CUDA=off
RUN ODMOE_CUDA=$ODMOE_CUDA node scripts/build-native.mjs
RUN node scripts/build-typescript.mjs && node scripts/build-benchmarks.mjs
RUN npm prune --omit=dev --no-audit --no-fund \
  && mkdir native-library && cp build/Release/*.node native-library/ \
  && if [ -e build/Release/libodmoe_cuda.so ]; then cp build/Release/libodmoe_cuda.so native-library/; fi

FROM node:20-bookworm-slim
RUN apt-get update \
  && apt-get install -y --no-install-recommends libzstd1 liblz4-1 liburing2 libstdc++6 ca-certificates \
  && rm -rf /var/lib/apt/lists/* \
  && groupadd --gid 10001 odmoe \
  && useradd --uid 10001 --gid 10001 --home-dir /var/lib/odmoe --no-create-home --shell /usr/sbin/nologin odmoe \
  && install -d -m 700 -o 10001 -g 10001 /var/lib/odmoe /packs /join \
  && ln -s /opt/odmoe/bin/odmoe /usr/local/bin/odmoe
WORKDIR /opt/odmoe
COPY --from=build /opt/odmoe/package.json /opt/odmoe/LICENSE /opt/odmoe/CHANGELOG.md ./
COPY --from=build /opt/odmoe/node_modules node_modules
COPY --from=build /opt/odmoe/bin bin
COPY --from=build /opt/odmoe/proto proto
COPY --from=build /opt/odmoe/models models
COPY --from=build /opt/odmoe/bench/profiles bench/profiles
COPY --from=build /opt/odmoe/native/gpu-files.json native/gpu-files.json
COPY --from=build /opt/odmoe/dist dist
COPY --from=build /opt/odmoe/native-library build/Release
# Keys, records and fetched packs lie on the volume: a container that is made anew is the same machine to its cluster.
ENV NODE_ENV=production
ENV HOME=/var/lib/odmoe
ENV XDG_STATE_HOME=/var/lib/odmoe/state
ENV XDG_DATA_HOME=/var/lib/odmoe/data
ENV XDG_CONFIG_HOME=/var/lib/odmoe/config
USER 10001:10001
VOLUME /var/lib/odmoe
EXPOSE 7600 7601 7602 7680
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=10m --retries=3 CMD ["odmoe", "health"]
ENTRYPOINT ["node", "/opt/odmoe/bin/odmoe"]
CMD ["--help"]
