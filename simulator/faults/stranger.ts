import { EPOCH_LIMIT } from '../../shared/wire/epochs.js';
import { OLDEST_PROTOCOL } from '../../shared/wire/limits.js';
import type { NodeIdentity } from '../../shared/wire/messages.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { METHODS, type MethodRules } from '../../shared/transport/methods.js';
import type { PeerRole } from '../../shared/transport/trust/peer-role.js';
import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import type { ChannelFrame, ChannelOwner } from '../network/channel.js';
import type { Fault } from './scenario.js';

const STRANGER = 'stranger';
const SILENCE_MS = 1000;
const ATTEMPTS = 6;

/** The certificate that a stranger shows. */
export interface ShownCertificate {
  /** DER; null: it has none. */
  readonly certificate: Buffer | null;
  /** The role and id in it, if the cluster admits it; null: it admits it nowhere. */
  readonly admitted: { readonly role: PeerRole; readonly id: string } | null;
}

/** One thing that a stranger asks for: a method, its request or the messages on its stream, and what must not come back. */
interface Attempt {
  readonly method: MethodRules & { path: string };
  readonly request: Buffer;
  readonly messages: readonly Buffer[];
  /** True if this reply gives the stranger what it asked for. */
  gives(reply: Buffer): boolean;
}

/** The keys that a stranger has, and the object that counts its attempts. */
export interface StrangerWorld {
  /** The identity that main has stated last; null: none yet. */
  stated(): NodeIdentity | null;
  /** It has got what it must not get. */
  gotIn(what: string): void;
  /** It was refused, with this code. */
  refused(code: string): void;
}

/** A process that asks the daemons of a cluster with an authority for what it must not get. */
export class Stranger {
  private readonly random: SeededRandom;
  private readonly runtime: VirtualRuntime;
  private readonly owner: ChannelOwner;

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly fault: Fault,
    private readonly shown: ShownCertificate,
    private readonly told: StrangerWorld,
  ) {
    this.random = new SeededRandom(fault.seed);
    this.runtime = new VirtualRuntime(cluster.clock, fault.seed);
    const { certificate } = shown;
    const strangerCertificate = certificate === null ? {} : { strangerCertificate: certificate };
    this.owner = {
      host: STRANGER,
      runtime: this.runtime,
      silenceLimitMs: SILENCE_MS,
      trust: null,
      ...strangerCertificate,
    };
  }

  /** Begins to ask. Returns a function that ends it. */
  begin(): () => void {
    for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
      const atMs = this.random.int(Math.max(1, this.fault.forMs));
      this.runtime.after(atMs, () => this.ask(this.attempt()));
    }
    return () => {
      this.runtime.kill();
      this.cluster.network.processGone(this.runtime);
    };
  }

  private ask(attempt: Attempt): void {
    const { method, request, messages } = attempt;
    const { path, servedBy } = method;
    const { address } = this.cluster.node(this.fault.node);
    const side = this.cluster.network.connect(this.owner, address, { path, servedBy, bytes: request });
    side.onFrame = (frame: ChannelFrame) => {
      if (frame.kind === 'message') {
        if (attempt.gives(frame.bytes)) this.told.gotIn(`${path} of ${this.fault.node}`);
        else this.told.refused('NOT_ALLOWED');
      } else if (frame.kind === 'failed') this.told.refused(frame.code);
    };
    for (const bytes of messages) side.send({ kind: 'message', bytes });
  }

  private attempt(): Attempt {
    const { admitted } = this.shown;
    const all = [...this.plain(), ...this.streams(), this.join()];
    // An admitted caller is no stranger, unless it states that it is another one.
    const wanted = admitted === null ? all : all.filter(({ method }) => this.isForbidden(method, admitted.role));
    return this.random.pick(wanted);
  }

  private isForbidden({ path, callers }: MethodRules & { path: string }, role: PeerRole): boolean {
    return !callers.has(role) || path === METHODS.cluster.join.path || path === METHODS.worker.serve.path;
  }

  private plain(): Attempt[] {
    const { node, cluster, operator, inference, pack } = METHODS;
    const any = { messages: [], gives: () => true };
    const prompt = { text: 'a', messages: [], promptTokenIds: [], raw: true, maxTokens: 4, sampling: null, stop: [] };
    const generate = { ...prompt, ignoreEos: true, logprobs: 0 };
    return [
      { method: node.identify, request: node.identify.request.encode({}), ...any },
      { method: node.counts, request: node.counts.request.encode({}), ...any },
      { method: cluster.status, request: cluster.status.request.encode({}), ...any },
      { method: operator.removeNode, request: operator.removeNode.request.encode({ id: 'w0' }), ...any },
      { method: inference.generate, request: inference.generate.request.encode(generate), ...any },
      { method: pack.describe, request: pack.describe.request.encode({}), ...any },
    ];
  }

  /** A hello of main, and messages that would ruin the epochs of whoever took them. */
  private streams(): Attempt[] {
    const { worker, shadow } = METHODS;
    const hello = this.identity('ROLE_MAIN', this.random.pick(['main', 'other']));
    const announce = { epoch: EPOCH_LIMIT, pass: { sequence: 1, position: 0 }, rows: [], layer: 0, experts: [0] };
    const toWorker = worker.serve;
    const toShadow = shadow.serve;
    return [
      {
        method: toWorker,
        request: NOTHING,
        messages: [
          toWorker.request.encode({ kind: 'hello', hello }),
          toWorker.request.encode({ kind: 'announce', announce }),
        ],
        gives: (reply) => toWorker.reply.decode(reply).kind !== 'refusal',
      },
      {
        method: toShadow,
        request: NOTHING,
        messages: [
          toShadow.request.encode({ kind: 'hello', hello }),
          toShadow.request.encode({ kind: 'end', end: { sequence: 1 } }),
        ],
        gives: (reply) => toShadow.reply.decode(reply).kind !== 'refusal',
      },
    ];
  }

  private join(): Attempt {
    const { join } = METHODS.cluster;
    const identity = this.identity('ROLE_WORKER', 'other');
    return {
      method: join,
      request: join.request.encode({ identity }),
      messages: [],
      gives: (reply) => join.reply.decode(reply).kind !== 'refusal',
    };
  }

  /** Main's identity with another id and role: nothing else in it is a reason to refuse it. */
  private identity(role: NodeIdentity['role'], id: string): NodeIdentity {
    const stated = this.told.stated() ?? UNKNOWN;
    return { ...stated, id, role, bootId: STRANGER, address: `${STRANGER}:1` };
  }
}

const NOTHING = Buffer.alloc(0);
/** The identity of a main that nobody has heard yet. */
const UNKNOWN = {
  cluster: 'simulated',
  protocolVersion: OLDEST_PROTOCOL,
  modelName: 'model',
  packDigest: 'f'.repeat(64),
  device: '',
} as NodeIdentity;
