import { runtime } from '../../cli/client/process-runtime.js';
import { LimitsCluster, type Target } from './limits-cluster.js';
import type { CaseAnswer, LimitsCase } from './limits-case.js';
import { forgetPeak, type ProcessUsage, readUsage } from './process-usage.js';
import { askOnce } from './small-request.js';
import { type ProbeTarget, StallProbe, type Waits } from './stall-probe.js';
import type { CaseFigures } from './verdict.js';

/** Small requests before the measurement, to warm up the daemon's code. */
const WARM_UP_REQUESTS = 10;
const QUIET_MS = 1000;
/** Work that a message causes may continue after its answer. */
const SETTLE_MS = 500;

/** Runs a case against newly started daemons. Throws the errors of their start, and CANCELLED. */
export async function measureCase(one: LimitsCase, packPath: string, signal: AbortSignal): Promise<CaseFigures> {
  const { target, mainFlags = [] } = one;
  const cluster = await LimitsCluster.start({ packPath, target, mainFlags }, signal);
  const probe = new StallProbe(probeTarget(cluster, target));
  try {
    for (let request = 0; request < WARM_UP_REQUESTS; request += 1) await askOnce(cluster.url);
    await probe.take();
    const quiet = await observe(cluster, probe, async () => {
      await runtime.sleep(QUIET_MS);
      return { text: '', expected: true };
    });
    await forgetPeak(cluster.pid);
    const seen = await observe(cluster, probe, () => one.run(cluster, signal));
    return caseFiguresOf(quiet, seen);
  } finally {
    await probe.stop();
    await cluster.stop();
  }
}

interface Observed {
  answer: CaseAnswer;
  before: ProcessUsage;
  after: ProcessUsage;
  elapsedMs: number;
  waits: Waits;
  logBytes: number;
  alive: boolean;
}

async function observe(cluster: LimitsCluster, probe: StallProbe, run: () => Promise<CaseAnswer>): Promise<Observed> {
  const before = await readUsage(cluster.pid);
  const logBytesBefore = cluster.logBytes;
  const began = performance.now();
  const answer = await run();
  await runtime.sleep(SETTLE_MS);
  const waits = await probe.take();
  const elapsedMs = performance.now() - began;
  const { alive } = cluster;
  // A daemon that has ended reports no usage.
  const after = alive ? await readUsage(cluster.pid) : before;
  return { answer, before, after, elapsedMs, waits, logBytes: cluster.logBytes - logBytesBefore, alive };
}

/** Computes a case's figures. The share of processor time in the quiet second is subtracted. Pure. */
export function caseFiguresOf(quiet: Observed, seen: Observed): CaseFigures {
  const quietShare = (quiet.after.processorMs - quiet.before.processorMs) / quiet.elapsedMs;
  const usedMs = seen.after.processorMs - seen.before.processorMs;
  const { answer, alive, elapsedMs, waits } = seen;
  return {
    answer: answer.text,
    expected: answer.expected,
    messages: answer.messages ?? 1,
    elapsedMs,
    processorMs: Math.max(0, usedMs - quietShare * elapsedMs),
    growthBytes: Math.max(0, seen.after.peakBytes - seen.before.residentBytes),
    stallMs: waits.stallMs,
    quietStallMs: quiet.waits.stallMs,
    busyMs: waits.busyMs,
    besideMs: waits.besideMs,
    logBytesPerS: (seen.logBytes * 1000) / elapsedMs,
    alive,
  };
}

function probeTarget(cluster: LimitsCluster, target: Target): ProbeTarget {
  const { pid, url } = cluster;
  if (target === 'main') return { kind: 'http', url, pid, mainUrl: url };
  return { kind: 'rpc', address: cluster.addressOf(target), pid, mainUrl: url };
}
