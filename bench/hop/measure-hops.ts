/** Round trips main -> worker -> main with hidden states, by plain TCP and by gRPC in plaintext and behind TLS, interleaved in one run. */
import { type EchoProcess, startEchoProcess } from './echo-peer.js';
import { createHopAuthority } from './hop-trust.js';

export interface HopRow {
  name: string;
  bytes: number;
  workers: number;
  tcp: HopTimes;
  /** gRPC in plaintext. */
  grpc: HopTimes;
  /** gRPC behind TLS with certificates on both sides. */
  tls: HopTimes;
  /** The median by gRPC divided by the median by TCP. */
  ratio: number;
  /** The median by gRPC behind TLS divided by the median by gRPC in plaintext. */
  tlsRatio: number;
  /** The same of the 10th percentiles, which other work on the machine disturbs less. */
  tlsP10Ratio: number;
}

/** Durations of round trips, in microseconds. */
interface HopDurations {
  p10Us: number;
  medianUs: number;
  p99Us: number;
  roundTrips: number;
}

export interface HopTimes extends HopDurations {
  /** Processor time of both ends, all threads, for one round trip. */
  processorUs: number;
}

/** `bytes`: a whole number of FP32 values; `workers`: 1 or 2. */
export type HopCase = Pick<HopRow, 'name' | 'bytes' | 'workers'>;

const CASES: readonly HopCase[] = [
  { name: '1 KB', bytes: 1024, workers: 1 },
  { name: '8 KB', bytes: 8192, workers: 1 },
  { name: '16 KB', bytes: 16_384, workers: 1 },
  { name: '16 KB to 2 workers', bytes: 16_384, workers: 2 },
];

/** Round trips by one transport before the next one's turn. */
const TURN_ROUND_TRIPS = 50;
const WARM_UP_ROUND_TRIPS = 1000;

/** Measures each of the cases for an equal part of `seconds`. Starts two echo processes and ends them. */
export async function measureHops(seconds: number, cases: readonly HopCase[] = CASES): Promise<HopRow[]> {
  const authority = createHopAuthority();
  const echoes: EchoProcess[] = [];
  try {
    for (let index = 0; index < 2; index += 1) echoes.push(await startEchoProcess(authority));
    const rows: HopRow[] = [];
    for (const hop of cases) rows.push(await measureCase(hop, echoes, (seconds * 1000) / cases.length));
    return rows;
  } finally {
    for (const echo of echoes) echo.stop();
  }
}

async function measureCase(hop: HopCase, echoes: readonly EchoProcess[], durationMs: number): Promise<HopRow> {
  const peers = echoes.slice(0, hop.workers);
  const payload = new Uint8Array(hop.bytes).map((_, index) => index & 255);
  const by = (way: 'tcp' | 'grpc' | 'tls'): MeasuredWay => new MeasuredWay(peers, (peer) => peer[way], payload);
  const [tcp, grpc, tls] = [by('tcp'), by('grpc'), by('tls')];
  const ways = [tcp, grpc, tls];
  for (const way of ways) await way.warmUp();
  const end = performance.now() + durationMs;
  while (performance.now() < end) {
    for (const way of ways) await way.takeTurn();
  }
  return compareHops(hop, { tcp: tcp.times(), grpc: grpc.times(), tls: tls.times() });
}

/** The row of a case, with its ratios. Pure. */
export function compareHops(hop: HopCase, times: Pick<HopRow, 'tcp' | 'grpc' | 'tls'>): HopRow {
  const { tcp, grpc, tls } = times;
  return {
    ...hop,
    ...times,
    ratio: grpc.medianUs / tcp.medianUs,
    tlsRatio: tls.medianUs / grpc.medianUs,
    tlsP10Ratio: tls.p10Us / grpc.p10Us,
  };
}

/** Round trips of one case by one transport. */
class MeasuredWay {
  private readonly durationsUs: number[] = [];
  private processorUs = 0;

  constructor(
    private readonly peers: readonly EchoProcess[],
    private readonly way: (peer: EchoProcess) => EchoProcess['tcp'],
    private readonly payload: Uint8Array,
  ) {}

  async warmUp(): Promise<void> {
    for (let index = 0; index < WARM_UP_ROUND_TRIPS; index += 1) await this.roundTrip();
  }

  async takeTurn(): Promise<void> {
    const beforeUs = await this.usedUs();
    for (let index = 0; index < TURN_ROUND_TRIPS; index += 1) {
      const start = performance.now();
      await this.roundTrip();
      this.durationsUs.push((performance.now() - start) * 1000);
    }
    this.processorUs += (await this.usedUs()) - beforeUs;
  }

  times(): HopTimes {
    const durations = summarizeHops(this.durationsUs);
    return { ...durations, processorUs: this.processorUs / Math.max(1, durations.roundTrips) };
  }

  private roundTrip(): Promise<unknown> {
    const [first] = this.peers;
    if (this.peers.length === 1 && first !== undefined) return this.way(first).roundTrip(this.payload);
    return Promise.all(this.peers.map((peer) => this.way(peer).roundTrip(this.payload)));
  }

  /** Processor time of this process and of the peers so far. */
  private async usedUs(): Promise<number> {
    const ofPeers = await Promise.all(this.peers.map((peer) => peer.processorUs()));
    const { user, system } = process.cpuUsage();
    return ofPeers.reduce((sum, us) => sum + us, user + system);
  }
}

/** 10th percentile, median and 99th percentile (nearest rank) of durations in microseconds; zeros if there are none. */
export function summarizeHops(durationsUs: readonly number[]): HopDurations {
  const sorted = [...durationsUs].sort((left, right) => left - right);
  const rank = (share: number): number => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;
  return { p10Us: rank(0.1), medianUs: rank(0.5), p99Us: rank(0.99), roundTrips: sorted.length };
}
