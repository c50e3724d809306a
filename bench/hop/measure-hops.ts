/** Round trips main -> worker -> main with hidden states, by gRPC and by plain TCP, interleaved in one run. */
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { GrpcTransport } from '../../shared/transport/grpc-transport.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { WorkerReply, WorkerRequest } from '../../shared/wire/messages.js';
import { WallRuntime } from '../../shared/base/runtime/wall-runtime.js';
import { HOP_NETWORK } from './hop-network.js';
import { connectTcp, type TcpPeer } from './tcp-frames.js';
import { openWorkerStream } from '../../shared/transport/node-clients.js';

export interface HopRow {
  name: string;
  bytes: number;
  workers: number;
  tcp: HopTimes;
  grpc: HopTimes;
  /** The median by gRPC divided by the median by TCP. */
  ratio: number;
}

/** `bytes`: a whole number of FP32 values; `workers`: 1 or 2. */
export type HopCase = Pick<HopRow, 'name' | 'bytes' | 'workers'>;

const CASES: readonly HopCase[] = [
  { name: '1 KB', bytes: 1024, workers: 1 },
  { name: '8 KB', bytes: 8192, workers: 1 },
  { name: '16 KB', bytes: 16_384, workers: 1 },
  { name: '16 KB to 2 workers', bytes: 16_384, workers: 2 },
];

/** Round trips by one transport before the other one's turn. */
const TURN_ROUND_TRIPS = 50;
const WARM_UP_ROUND_TRIPS = 1000;
const START_TIMEOUT_MS = 10_000;

/** Measures each of the cases for an equal part of `seconds`. Starts two echo processes and ends them. */
export async function measureHops(seconds: number, cases: readonly HopCase[] = CASES): Promise<HopRow[]> {
  const echoes: EchoProcess[] = [];
  try {
    for (let index = 0; index < 2; index += 1) echoes.push(await startEchoProcess());
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
  const byTcp = (): Promise<unknown> => both(peers, (peer) => peer.tcp.roundTrip(payload));
  const byGrpc = (): Promise<unknown> => both(peers, (peer) => peer.grpc.roundTrip(payload));
  await turn(byTcp, WARM_UP_ROUND_TRIPS);
  await turn(byGrpc, WARM_UP_ROUND_TRIPS);
  const tcpUs: number[] = [];
  const grpcUs: number[] = [];
  const end = performance.now() + durationMs;
  while (performance.now() < end) {
    tcpUs.push(...(await turn(byTcp, TURN_ROUND_TRIPS)));
    grpcUs.push(...(await turn(byGrpc, TURN_ROUND_TRIPS)));
  }
  const tcp = summarizeHops(tcpUs);
  const grpc = summarizeHops(grpcUs);
  return { name: hop.name, bytes: hop.bytes, workers: hop.workers, tcp, grpc, ratio: grpc.medianUs / tcp.medianUs };
}

function both(peers: readonly EchoProcess[], roundTrip: (peer: EchoProcess) => Promise<void>): Promise<unknown> {
  const [first] = peers;
  return peers.length === 1 && first !== undefined ? roundTrip(first) : Promise.all(peers.map(roundTrip));
}

async function turn(roundTrip: () => Promise<unknown>, count: number): Promise<number[]> {
  const durationsUs: number[] = [];
  for (let index = 0; index < count; index += 1) {
    const start = performance.now();
    await roundTrip();
    durationsUs.push((performance.now() - start) * 1000);
  }
  return durationsUs;
}

interface EchoProcess {
  tcp: TcpPeer;
  grpc: { roundTrip(payload: Uint8Array): Promise<void> };
  stop(): void;
}

async function startEchoProcess(): Promise<EchoProcess> {
  const script = fileURLToPath(new URL('./echo-process.js', import.meta.url));
  const child = spawn(process.execPath, [script], { stdio: ['pipe', 'pipe', 'inherit'] });
  const { tcpPort, rpcAddress } = await readPorts(child);
  const tcp = await connectTcp(tcpPort);
  const stream = openWorkerStream(new GrpcTransport(new WallRuntime()), rpcAddress, HOP_NETWORK);
  const grpc = grpcPeer(stream);
  // The stream takes only a small first message, and tensors from a peer that is known by it.
  await grpc.roundTrip(new Uint8Array(Float32Array.BYTES_PER_ELEMENT));
  stream.takeTensors();
  return {
    tcp,
    grpc,
    stop: () => {
      tcp.close();
      stream.close();
      child.kill('SIGKILL');
    },
  };
}

async function readPorts(child: ChildProcess): Promise<{ tcpPort: number; rpcAddress: string }> {
  assertInvariant(child.stdout !== null, 'an echo process writes to a pipe');
  const signal = AbortSignal.timeout(START_TIMEOUT_MS);
  const [line] = (await once(child.stdout, 'data', { signal })) as [Buffer];
  return JSON.parse(line.toString()) as { tcpPort: number; rpcAddress: string };
}

function grpcPeer(stream: PeerStream<WorkerRequest, WorkerReply>): EchoProcess['grpc'] {
  let requestId = 0;
  let settle: { resolve: () => void; reject: (error: Error) => void } | null = null;
  stream.onMessage((reply) => {
    if (reply.kind === 'result' && reply.result.requestId === requestId) settle?.resolve();
  });
  stream.onClose((error) => settle?.reject(error ?? new OdmoeError('INTERNAL', 'the echo process ended the stream')));
  return {
    roundTrip: (payload) =>
      new Promise((resolve, reject) => {
        settle = { resolve, reject };
        requestId += 1;
        const experts = [{ expert: 1, rows: [], last: true }];
        stream.send({
          kind: 'execute',
          execute: {
            requestId,
            epoch: 1,
            ...passOfSequence(1, requestId, 1),
            layer: 1,
            hiddenSize: payload.length / 4,
            dtype: 'TENSOR_TYPE_F32' as const,
            hidden: payload,
            experts,
          },
        });
      }),
  };
}

interface HopTimes {
  medianUs: number;
  p99Us: number;
  roundTrips: number;
}

/** Median and 99th percentile (nearest rank) of durations in microseconds; zeros if there are none. */
export function summarizeHops(durationsUs: readonly number[]): HopTimes {
  const sorted = [...durationsUs].sort((left, right) => left - right);
  const rank = (share: number): number => sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)] ?? 0;
  return { medianUs: rank(0.5), p99Us: rank(0.99), roundTrips: sorted.length };
}
