# graphc in a small image: docker build -t graphc --build-arg COMMIT=$(git rev-parse --short=12 HEAD) .
#   docker run --rm -v "$PWD:/work" graphc model.onnx -o model.plan
# With an NVIDIA GPU: docker run --gpus all, and run --device cuda.
FROM debian:12 AS build
COPY . /src
WORKDIR /src
ARG COMMIT=""
RUN tests/setup \
 && apt-get install -y -qq --no-install-recommends dpkg-dev file \
 && cmake --preset static -DGRAPHC_COMMIT="$COMMIT" \
 && cmake --build build-static \
 && cpack --config build-static/CPackConfig.cmake -G DEB -B /out

FROM debian:12-slim
COPY --from=build /out/*.deb /tmp/
RUN apt-get update -qq \
 && apt-get install -y -qq --no-install-recommends /tmp/*.deb \
 && rm -rf /tmp/*.deb /var/lib/apt/lists/*
WORKDIR /work
ENTRYPOINT ["graphc"]
