import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import { EPOCH_LIMIT, PEER_EPOCH_LIMIT } from '../../shared/wire/epochs.js';
import { OLDEST_PROTOCOL, SERVED_STREAMS_OF_PEER_LIMIT } from '../../shared/wire/limits.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { ChannelSide } from '../network/channel.js';
import type { Fault } from './scenario.js';
import { METHODS } from '../../shared/transport/methods.js';

const ROGUE = 'rogue';
const SILENCE_MS = 1000;
const MESSAGES = 12;
/** More streams than one host gets. */
const FLOODED_STREAMS = SERVED_STREAMS_OF_PEER_LIMIT + 8;
const FLOOD_CHANCE = 0.3;
/** Epochs and ids of sequences at the limit: the last valid ones, and invalid ones. */
const NEAR_LIMITS = [PEER_EPOCH_LIMIT, PEER_EPOCH_LIMIT + 1, EPOCH_LIMIT, EPOCH_LIMIT + 1, 2 ** 53 - 1] as const;
const LARGEST_POSITION = 2 ** 32 - 1;
const PATHS = [
  METHODS.node.identify,
  METHODS.shadow.serve,
  METHODS.worker.serve,
  METHODS.cluster.join,
  METHODS.inference.generate,
  METHODS.pack.read,
].map(({ path }) => path);

/** A process that sends what no daemon sends: bytes that are not messages, a hello with a wrong identity, predictions without meaning. */
export class RoguePeer {
  private readonly random: SeededRandom;
  private readonly runtime: VirtualRuntime;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly fault: Fault,
  ) {
    this.random = new SeededRandom(fault.seed);
    this.runtime = new VirtualRuntime(cluster.clock, fault.seed);
  }

  /** Begins to send. Returns a function that ends it. */
  begin(): () => void {
    const { fault, random } = this;
    for (let connection = 0; connection < 3; connection++) {
      const path = random.pick(PATHS);
      const side = this.connect(fault.node, path, random.chance(0.5) ? this.noise() : Buffer.alloc(0));
      for (let message = 0; message < MESSAGES; message++) {
        const atMs = random.int(Math.max(1, fault.forMs));
        this.runtime.after(atMs, () => side.send({ kind: 'message', bytes: this.message(path, message) }));
      }
    }
    this.floodStreams();
    return () => {
      this.runtime.kill();
      this.cluster.network.processGone(this.runtime);
    };
  }

  /** Sometimes opens more streams than one host gets. Drawn from a stream of its own, so that what else a seed draws stays the same. */
  private floodStreams(): void {
    const random = new SeededRandom(this.fault.seed + 1);
    if (!random.chance(FLOOD_CHANCE)) return;
    const { path } = random.pick([METHODS.shadow.serve, METHODS.worker.serve]);
    const hello = path === METHODS.worker.serve.path ? METHODS.worker.serve.request : METHODS.shadow.serve.request;
    for (let stream = 0; stream < FLOODED_STREAMS; stream += 1) {
      const side = this.connect(this.fault.node, path, Buffer.alloc(0));
      const bytes = hello.encode({ kind: 'hello', hello: this.identity() });
      this.runtime.after(random.int(Math.max(1, this.fault.forMs)), () => side.send({ kind: 'message', bytes }));
    }
  }

  private connect(node: string, path: string, bytes: Buffer): ChannelSide {
    const address = this.cluster.node(node).address;
    // In a cluster with an authority it is a stranger without a certificate.
    const owner = { host: ROGUE, runtime: this.runtime, silenceLimitMs: SILENCE_MS, trust: null };
    return this.cluster.network.connect(owner, address, { path, bytes, servedBy: 'any node' });
  }

  private message(path: string, number: number): Buffer {
    const { random } = this;
    if (random.chance(0.3)) return this.noise();
    if (path === METHODS.worker.serve.path) {
      if (number === 0) return METHODS.worker.serve.request.encode({ kind: 'hello', hello: this.identity() });
      return METHODS.worker.serve.request.encode(this.workerRequest());
    }
    if (path === METHODS.shadow.serve.path) {
      if (number === 0) return METHODS.shadow.serve.request.encode({ kind: 'hello', hello: this.identity() });
      return METHODS.shadow.serve.request.encode({ kind: 'end', end: { sequence: random.int(1000) } });
    }
    return this.noise();
  }

  private workerRequest(): Parameters<typeof METHODS.worker.serve.request.encode>[0] {
    const { random } = this;
    const sequence = random.chance(0.5) ? random.int(2 ** 40) : random.pick(NEAR_LIMITS);
    const pass = { sequence, position: random.chance(0.5) ? random.int(5000) : LARGEST_POSITION };
    const rows = random.chance(0.5) ? [] : [{ ...pass, rows: 1 + random.int(4) }];
    const place = { epoch: random.pick([0, 1, ...NEAR_LIMITS]), pass, rows, layer: random.int(6) };
    const experts = Array.from({ length: random.int(4) }, () => random.int(12));
    if (random.chance(0.3)) return { kind: 'release', release: { ...place, experts } };
    if (random.chance(0.1)) return { kind: 'restart', restart: { epoch: place.epoch, ...pass } };
    if (random.chance(0.5)) return { kind: 'announce', announce: { ...place, experts } };
    return { kind: 'predict', predict: { ...place, experts } };
  }

  /** The identity of a shadow of the cluster, or of a node that does not belong to it. */
  private identity(): NodeIdentity {
    const { random } = this;
    return {
      id: random.pick([ROGUE, 'main', 'w0', '']),
      role: random.pick(['ROLE_SHADOW', 'ROLE_MAIN', 'ROLE_WORKER'] as const),
      cluster: random.pick(['simulated', 'other']),
      protocolVersion: random.pick([OLDEST_PROTOCOL, 999]),
      modelName: 'model',
      packDigest: 'f'.repeat(64),
      bootId: ROGUE,
      address: `${ROGUE}:1`,
      device: '',
    } as NodeIdentity;
  }

  private noise(): Buffer {
    return Buffer.from(Array.from({ length: this.random.int(60) }, () => this.random.int(256)));
  }
}
