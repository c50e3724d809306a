import assert from 'node:assert/strict';
import type { PeerStream } from '../../../shared/transport/peer-stream.js';
import type { RpcServer } from '../../../shared/transport/transport.js';
import type {
  DraftToken,
  NodeIdentity,
  Placement,
  Predict,
  Restart,
  Refusal,
  ShadowReply,
  ShadowRequest,
  StreamError,
  WorkerReply,
  WorkerRequest,
} from '../../../shared/wire/messages.js';
import type { Logger } from '../../../shared/base/log/logger.js';
import type { NodeSettings } from '../../../shared/settings/node-settings.js';
import type { OdmoeError } from '../../../shared/base/errors/odmoe-error.js';
import { waitUntil } from '../harness/wait-until.js';
import { identifyPeer, openShadowStream, startRpcServer } from '../../wall.js';
import { plainIdentity } from '../../unit/plain-identity.js';

const IDENTIFY_TIMEOUT_MS = 5_000;

/** Key of one prediction: its sequence, position and layer. */
export function place({ sequence, position, layer }: { sequence: number; position: number; layer: number }): string {
  return `${sequence}@${position}/${layer}`;
}

/** A main that the test scripts, with a real connection to a shadow. */
export class ScriptedMain {
  /** Predictions from shadow, without those that a restart has made void. */
  predictions: Predict[] = [];
  readonly restarts: Restart[] = [];
  readonly drafts: DraftToken[] = [];
  readonly errors: StreamError[] = [];
  readonly statuses: Extract<ShadowReply, { kind: 'status' }>['status'][] = [];
  refusal: Refusal | null = null;
  welcomed = false;
  closed: { error: OdmoeError | null } | null = null;

  private constructor(
    readonly identity: NodeIdentity,
    readonly stream: PeerStream<ShadowRequest, ShadowReply>,
  ) {
    stream.onClose((error) => (this.closed = { error }));
    stream.onMessage((reply) => this.receive(reply));
  }

  /** Connects without a hello. The identity is that of the shadow, but with the role of a main and with `changes`. */
  static async connect(
    address: string,
    network: NodeSettings['network'],
    changes: Partial<NodeIdentity> = {},
  ): Promise<ScriptedMain> {
    const shadow = await identifyPeer(address, IDENTIFY_TIMEOUT_MS);
    const identity: NodeIdentity = { ...shadow, id: 'main', role: 'ROLE_MAIN', bootId: 'boot', ...changes };
    return new ScriptedMain(identity, openShadowStream(address, network));
  }

  hello(): void {
    this.send({ kind: 'hello', hello: this.identity });
  }

  async greet(): Promise<void> {
    this.hello();
    await waitUntil('the shadow answers hello', () => this.welcomed || this.refusal !== null || this.closed !== null);
  }

  send(request: ShadowRequest): void {
    this.stream.send(request);
  }

  private isOf({ pass, layer }: Predict, wanted: Parameters<typeof place>[0]): boolean {
    return place({ ...pass, layer }) === place(wanted);
  }

  /** Predicted experts of a layer at a position. Fails unless there is exactly one prediction. */
  expertsAt(sequence: number, position: number, layer: number): readonly number[] {
    const found = this.predictions.filter((prediction) => this.isOf(prediction, { sequence, position, layer }));
    assert.equal(found.length, 1, `one prediction for ${place({ sequence, position, layer })}`);
    return found[0]?.experts ?? [];
  }

  /** Experts of the last prediction for a layer of a pass. It contains the experts of all earlier ones. */
  lastExpertsAt(sequence: number, position: number, layer: number): readonly number[] {
    return this.predictions.findLast((found) => this.isOf(found, { sequence, position, layer }))?.experts ?? [];
  }

  async waitForPosition(sequence: number, position: number, layers: number): Promise<void> {
    const last = { sequence, position, layer: layers - 1 };
    await waitUntil(`the prediction for ${place(last)} arrives`, () =>
      this.predictions.some((prediction) => this.isOf(prediction, last)),
    );
  }

  private takeRestart(restart: Restart): void {
    const { sequence, position } = restart;
    this.restarts.push(restart);
    this.predictions = this.predictions.filter(
      (sent) => sent.pass.sequence !== sequence || sent.pass.position < position,
    );
  }

  private receive(reply: ShadowReply): void {
    switch (reply.kind) {
      case 'welcome':
        this.welcomed = true;
        return;
      case 'refusal':
        this.refusal = reply.refusal;
        return;
      case 'predict':
        this.predictions.push(reply.predict);
        return;
      case 'restart':
        this.takeRestart(reply.restart);
        return;
      case 'draft':
        this.drafts.push(reply.draft);
        return;
      case 'error':
        this.errors.push(reply.error);
        return;
      case 'status':
        this.statuses.push(reply.status);
        return;
      case 'prefixKept':
        // Sequences that this main begins name no prefix.
        return;
    }
  }
}

/** A worker's server that records the predictions that shadow sends it. */
export class PredictionListener {
  readonly predictions: Predict[] = [];
  readonly restarts: Restart[] = [];
  openStreams = 0;
  /** True: it answers every prediction with the error for an older placement. */
  staleAnswers = false;
  private server: RpcServer | null = null;

  constructor(readonly id: string) {}

  get address(): string {
    return this.server?.address ?? '';
  }

  async start(network: NodeSettings['network'], log: Logger, port = 0): Promise<void> {
    const identity: NodeIdentity = plainIdentity({
      id: this.id,
      cluster: 'any',
      modelName: '',
      packDigest: '',
      bootId: this.id,
      address: '',
      device: 'none',
    });
    const worker = (stream: PeerStream<WorkerReply, WorkerRequest>) => this.serve(stream, identity);
    this.server = await startRpcServer({
      host: '127.0.0.1',
      port,
      network,
      log,
      node: { identify: () => identity },
      worker: { serve: worker },
    });
  }

  async stop(): Promise<void> {
    await this.server?.stop();
    this.server = null;
  }

  private serve(stream: PeerStream<WorkerReply, WorkerRequest>, identity: NodeIdentity): void {
    this.openStreams += 1;
    stream.onClose(() => (this.openStreams -= 1));
    stream.onMessage((request) => {
      if (request.kind === 'hello')
        stream.send({ kind: 'welcome', welcome: { identity, partialPack: false, highestEpoch: 0 } });
      if (request.kind === 'restart') this.restarts.push(request.restart);
      if (request.kind !== 'predict') return;
      this.predictions.push(request.predict);
      const { epoch } = request.predict;
      const error = { code: 'STALE_EPOCH', message: 'an older placement', requestId: 0, epoch };
      if (this.staleAnswers) stream.send({ kind: 'error', error });
    });
  }
}

/** A placement of these workers, all of them one group. */
export function placementOf(
  workers: readonly { id: string; address: string }[],
  shape: { expertLayers: number; experts: number; expertsPerToken: number },
  epoch: number,
): Placement {
  const { expertLayers: layers, experts, expertsPerToken } = shape;
  return {
    epoch,
    workers: workers.map(({ id, address }) => ({ id, address, slots: 2 })),
    groups: workers.length === 0 ? [] : [{ workerIds: workers.map(({ id }) => id) }],
    layers,
    experts,
    expertsPerToken,
    homes: 0,
    spread: false,
  };
}
