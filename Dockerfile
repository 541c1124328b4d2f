# weft from Debian's packages alone: docker build -t weft .   (docs/launching.md)
FROM debian:12 AS build
COPY . /weft
WORKDIR /weft
RUN scripts/install && cmake --preset cpu -DWEFT_TESTS=OFF && cmake --build build/cpu --target weft

FROM debian:12
RUN apt-get update && apt-get install -y --no-install-recommends \
      libbz2-1.0 libcld2-0 libcpp-httplib0.11 libdnnl2 libfmt9 libgomp1 libhwy1 liblz4-1 liblzma5 libpcre2-8-0 libsentencepiece0 \
      libsnappy1v5 libsqlite3-0 libssl3 libutf8proc2 libxml2 libxxhash0 libzstd1 zlib1g libopenmpi3 openmpi-bin openssh-client openssh-server && \
    rm -rf /var/lib/apt/lists/*
COPY --from=build /weft/build/cpu/weft /usr/local/bin/weft
# What is not linked would be missed only by the first run.
RUN weft --version && mpirun --version
