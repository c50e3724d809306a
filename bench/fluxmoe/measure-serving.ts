import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { type ExpertLayout, layoutOf, type ServingSystem } from './expert-layout.js';
import type { ServerModel, ServerProfile } from './server-profile.js';
import { ServerWork } from './server-work.js';
import { type ServerLoad, StreamingServer } from './streaming-server.js';

/** Passes before the measurement, which fill the window, and passes that are measured. */
const WARM_PASSES = 2;
const MEASURED_PASSES = 3;

/** Figures of a server at one point; all of it is emulated. */
export interface ServingFigures {
  /** Sequences that get a token in a pass; 0: no sequence fits. */
  rows: number;
  tokensPerS: number;
  passMs: number;
  computeMs: number;
  swapMs: number;
}

export interface ServingPoint {
  model: ServerModel;
  batch: number;
  /** Longest context of a request. */
  context: number;
}

/** Runs `play` on a separate clock. Rejects as `play` does. */
export async function onVirtualClock<Result>(play: (runtime: VirtualRuntime) => Promise<Result>): Promise<Result> {
  const clock = new VirtualClock();
  let ended = false;
  const played = play(new VirtualRuntime(clock, 1)).finally(() => {
    ended = true;
  });
  // A failure must end the clock's run, too; `played` itself reports it below.
  played.catch(() => undefined);
  await clock.run(() => ended);
  return played;
}

/** Measures a system's throughput at a point. @throws DEVICE_OUT_OF_MEMORY when its experts do not fit */
export function measureServing(
  profile: ServerProfile,
  point: ServingPoint,
  system: ServingSystem,
): Promise<ServingFigures> {
  const work = new ServerWork(point.model, profile.gpu, profile.costs);
  return measureLayout(work, layoutOf(system, work), serverLoadOf(profile, point));
}

/** The same for any layout. `cacheBytes`: device memory for keys and values; null: the memory that experts leave. */
export function measureLayout(
  work: ServerWork,
  layout: ExpertLayout,
  load: ServerLoad,
  cacheBytes: number | null = null,
): Promise<ServingFigures> {
  return onVirtualClock(async (runtime) => {
    const server = new StreamingServer(runtime, work, layout, cacheBytes);
    return measurePasses(server, load, WARM_PASSES, MEASURED_PASSES);
  });
}

/** Means over `measured` passes of a server, after `warm` passes that do not count. */
export async function measurePasses(
  server: StreamingServer,
  load: ServerLoad,
  warm: number,
  measured: number,
): Promise<ServingFigures> {
  const sums = { rows: 0, passMs: 0, computeMs: 0, swapMs: 0 };
  for (let pass = -warm; pass < measured; pass += 1) {
    const figures = await server.pass(load);
    if (pass < 0) continue;
    sums.rows += figures.rows / measured;
    sums.passMs += figures.passMs / measured;
    sums.computeMs += figures.computeMs / measured;
    sums.swapMs += figures.swapMs / measured;
  }
  return { ...sums, tokensPerS: sums.passMs === 0 ? 0 : (sums.rows / sums.passMs) * 1000 };
}

/** The mean number of positions of a sequence, from the longest context it may have. */
export function serverLoadOf({ costs }: ServerProfile, { batch, context }: Omit<ServingPoint, 'model'>): ServerLoad {
  return { sequences: batch, positions: Math.round(context * costs.contextShare) };
}
