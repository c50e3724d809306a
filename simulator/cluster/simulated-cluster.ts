import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { type OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { CallMethod } from '../../shared/transport/methods.js';
import type { Transport } from '../../shared/transport/transport.js';
import type { ClusterTrust } from '../../shared/transport/trust/cluster-trust.js';
import type { Finished, GenerateRequest, PromptToken, TokenReply } from '../../shared/wire/messages.js';
import { VirtualClock } from '../../shared/base/runtime/virtual-clock.js';
import { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import type { LinkModel } from '../network/link-model.js';
import { MemoryNetwork } from '../network/memory-network.js';
import { memoryTransport } from '../network/memory-transport.js';
import { History } from '../network/history.js';
import { SimulatedNode, type NodeWorld } from './simulated-node.js';
import { generate } from '../../shared/transport/node-clients.js';

export interface SimulationOptions {
  /** `now`: time of the virtual clock. */
  links: (now: () => number) => LinkModel;
  seed: number;
  /** Number of events that the history keeps as lines. */
  keepLines?: number;
  /** Time that clients wait for a silent main; if left out, the same as for the daemons' client. */
  clientPatienceMs?: number;
  /** The part of clients in the trust of a cluster with an authority; left out: it has none. */
  clientTrust?: ClusterTrust | null;
}

/** The behaviour of a client that reads its answer. */
export interface Reader {
  /** Time that the client spends on each token before it reads the next one. */
  readMs?: number;
  onToken?: (answer: SimulatedAnswer) => void;
}

/** The results that a client of the cluster got. */
export interface SimulatedAnswer {
  promptTokenIds: number[];
  /** For each token of the prompt, if the request asks for them. */
  promptLogprobs: PromptToken[];
  tokens: TokenReply[];
  finished: Finished | null;
  /** The reason of a failure; null: it did not fail, or is still under way. */
  error: OdmoeError | null;
  askedMs: number;
  /** Time when it ended; null: it is under way. */
  overMs: number | null;
  /** The client goes away. */
  cancel(): void;
}

/**
 * A cluster in one process: the real code of the daemons on a virtual clock and an in-memory network. Events happen only while `clock.run`
 * runs.
 */
export class SimulatedCluster {
  readonly clock = new VirtualClock();
  readonly history: History;
  readonly network: MemoryNetwork;
  readonly nodes = new Map<string, SimulatedNode>();
  readonly answers: SimulatedAnswer[] = [];
  private readonly client: { runtime: VirtualRuntime; transport: Transport };

  constructor(options: SimulationOptions) {
    const now = (): number => this.clock.nowMs;
    this.history = new History(now, options.keepLines ?? 0);
    this.network = new MemoryNetwork(this.clock, options.links(now), this.history);
    const runtime = new VirtualRuntime(this.clock, options.seed);
    const { clientPatienceMs: patienceMs, clientTrust: trust = null } = options;
    this.client = { runtime, transport: memoryTransport(this.network, CLIENT_HOST, runtime, { patienceMs, trust }) };
  }

  /** Timers and outside work that clients have open. */
  get clientOpen(): VirtualRuntime['openCounts'] {
    return this.client.runtime.openCounts;
  }

  add(settings: NodeSettings, world: NodeWorld): SimulatedNode {
    const node = new SimulatedNode(this.clock, this.network, settings, world);
    this.nodes.set(node.id, node);
    return node;
  }

  node(id: string): SimulatedNode {
    const node = this.nodes.get(id);
    if (node === undefined) throw new RangeError(`no node ${id}`);
    return node;
  }

  /** A client sends a request to the node; the answer comes while the clock runs. */
  ask(address: string, request: GenerateRequest, reader: Reader = {}): SimulatedAnswer {
    const gone = new AbortController();
    const answer: SimulatedAnswer = {
      promptTokenIds: [],
      promptLogprobs: [],
      tokens: [],
      finished: null,
      error: null,
      askedMs: this.clock.nowMs,
      overMs: null,
      cancel: () => this.client.runtime.within(() => gone.abort()),
    };
    this.answers.push(answer);
    void this.client.runtime.within(() => this.collect(address, request, answer, gone.signal, reader));
    return answer;
  }

  /** A client calls the node. Resolves to null if that fails; the time limit is on the virtual clock. */
  async call<Request, Reply>(
    address: string,
    method: CallMethod<Request, Reply>,
    request: Request,
    timeoutMs: number,
  ): Promise<Reply | null> {
    const { runtime, transport } = this.client;
    try {
      return await runtime.within(() => transport.call(address, method, request, { timeoutMs }));
    } catch (thrown) {
      this.history.add(`${method.path} failed: ${toOdmoeError(thrown).code}`);
      return null;
    }
  }

  private async collect(
    address: string,
    request: GenerateRequest,
    answer: SimulatedAnswer,
    signal: AbortSignal,
    { readMs = 0, onToken }: Reader,
  ): Promise<void> {
    try {
      for await (const reply of generate(this.client.transport, address, request, signal)) {
        if (reply.kind === 'started') answer.promptTokenIds = [...reply.started.promptTokenIds];
        else if (reply.kind === 'prompt') answer.promptLogprobs.push(...reply.prompt.tokens);
        else if (reply.kind === 'token') {
          answer.tokens.push(reply.token);
          onToken?.(answer);
          if (readMs > 0) await this.client.runtime.sleep(readMs, signal);
        } else if (reply.kind === 'finished') answer.finished = reply.finished;
      }
    } catch (thrown) {
      answer.error = toOdmoeError(thrown);
    }
    answer.overMs = this.clock.nowMs;
    const end = answer.error?.code ?? answer.finished?.finishReason ?? '';
    this.history.add(
      `answer ${this.answers.indexOf(answer)} over: ${end}, ${answer.tokens.map(({ tokenId }) => tokenId).join(' ')}`,
    );
  }
}

/** Host of the clients. */
export const CLIENT_HOST = 'client';
