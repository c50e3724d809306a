// Compiles the benchmarks into dist/, for an installation that is to have them without their sources (Dockerfile).
import { runBuild } from './build-state.mjs';
import { BENCH_MODULES, PRODUCT_MODULES, buildTypeScript } from './build-typescript.mjs';

runBuild('typescript', () => buildTypeScript([...PRODUCT_MODULES, ...BENCH_MODULES], () => undefined));
