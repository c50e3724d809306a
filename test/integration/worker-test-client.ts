import assert from 'node:assert/strict';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ExecuteResult, ExpertResult } from '../../shared/wire/messages.js';
import type {
  NodeIdentity,
  NodeStatus,
  Placement,
  StreamError,
  WorkerReply,
  WorkerRequest,
} from '../../shared/wire/messages.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import { plainExecute, plainPrediction, type PlainExecute } from '../unit/wire-messages.js';
import { waitUntil } from './harness/wait-until.js';
import { identifyPeer, openWorkerStream } from '../wall.js';

export type Outcome = { result: ExecuteResult } | { error: StreamError };

/** A test client that is a worker's main or shadow, over a real stream. */
export class WorkerTestClient {
  readonly statuses: NodeStatus[] = [];
  readonly errors: StreamError[] = [];
  welcome: NodeIdentity | null = null;
  /** Epoch of the placement that this client published last; before that, the newest epoch that the worker has seen. */
  epoch = 0;
  refusal: string | null = null;
  closed: { error: OdmoeError | null } | null = null;
  private readonly stream: PeerStream<WorkerRequest, WorkerReply>;
  private readonly pending = new Map<number, (outcome: Outcome) => void>();
  private lastRequestId = 0;

  private constructor(
    address: string,
    network: NodeSettings['network'],
    readonly own: NodeIdentity,
  ) {
    this.stream = openWorkerStream(address, network);
    this.stream.onMessage((reply) => this.receive(reply));
    this.stream.onClose((error) => (this.closed = { error }));
    this.send({ kind: 'hello', hello: own });
  }

  /** Says hello with an identity that fits the worker, except for `changes`, and waits for the answer. */
  static async connect(
    address: string,
    network: NodeSettings['network'],
    changes: Partial<NodeIdentity> = {},
  ): Promise<WorkerTestClient> {
    const worker = await identifyPeer(address, 5000);
    const own: NodeIdentity = {
      ...worker,
      id: 'main',
      role: 'ROLE_MAIN',
      bootId: 'test',
      address: 'test:1',
      ...changes,
    };
    const client = new WorkerTestClient(address, network, own);
    await waitUntil('the worker answers hello', () => client.welcome !== null || client.refusal !== null);
    return client;
  }

  send(message: WorkerRequest): void {
    this.stream.send(message);
  }

  place(placement: Placement): void {
    this.epoch = placement.epoch;
    this.send({ kind: 'placement', placement });
  }

  predict(prediction: Parameters<typeof plainPrediction>[0]): void {
    const predict = plainPrediction({ epoch: this.epoch, ...prediction });
    this.send(this.own.role === 'ROLE_MAIN' ? { kind: 'announce', announce: predict } : { kind: 'predict', predict });
  }

  /** Asks the worker to run one expert on all of the hidden states. */
  execute(request: PlainExecute & { hiddenSize: number; hidden: Uint8Array }): Promise<Outcome> {
    const requestId = ++this.lastRequestId;
    const rows = request.hidden.length / (request.hiddenSize * 4);
    return new Promise((resolve) => {
      this.pending.set(requestId, resolve);
      this.send({ kind: 'execute', execute: plainExecute({ rows, epoch: this.epoch, ...request, requestId }) });
    });
  }

  async result(request: Parameters<WorkerTestClient['execute']>[0]): Promise<ExpertResult & { epoch: number }> {
    const outcome = await this.execute(request);
    if ('error' in outcome) assert.fail(`${outcome.error.code}: ${outcome.error.message}`);
    const [expert] = outcome.result.experts;
    assert.ok(expert !== undefined && outcome.result.last);
    if (expert.failure !== null) assert.fail(`${expert.failure.code}: ${expert.failure.message}`);
    return { ...expert, epoch: outcome.result.epoch };
  }

  /** The reason why the worker did not run the request or its one expert. */
  async error(request: Parameters<WorkerTestClient['execute']>[0]): Promise<StreamError> {
    const outcome = await this.execute(request);
    if ('error' in outcome) return outcome.error;
    const { requestId, epoch, experts } = outcome.result;
    const failure = experts[0]?.failure ?? assert.fail('the worker answered with a result');
    return { ...failure, requestId, epoch };
  }

  /** Waits for a new status that fulfils the condition. */
  async status(what: string, condition: (status: NodeStatus) => boolean = () => true): Promise<NodeStatus> {
    this.statuses.length = 0;
    let found: NodeStatus | undefined;
    await waitUntil(what, () => {
      found = this.statuses.find(condition);
      return found !== undefined;
    });
    return found as NodeStatus;
  }

  /** Ends the stream in order. With `abruptly` it ends as if the client's process were killed. */
  async close(abruptly: OdmoeError | undefined = undefined): Promise<void> {
    this.stream.close(abruptly);
    await waitUntil('the stream has ended', () => this.closed !== null);
  }

  private receive(reply: WorkerReply): void {
    switch (reply.kind) {
      case 'welcome':
        this.welcome = reply.welcome.identity;
        this.epoch = reply.welcome.highestEpoch;
        return;
      case 'refusal':
        this.refusal = reply.refusal.message;
        return;
      case 'result':
        return this.settle(reply.result.requestId, { result: reply.result });
      case 'error':
        if (reply.error.requestId === 0) this.errors.push(reply.error);
        return this.settle(reply.error.requestId, { error: reply.error });
      case 'status':
        this.statuses.push(reply.status);
        return;
    }
  }

  private settle(requestId: number, outcome: Outcome): void {
    this.pending.get(requestId)?.(outcome);
    this.pending.delete(requestId);
  }
}
