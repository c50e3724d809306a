import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { ModelShape } from '../../shared/model/model-shape.js';
import { assignmentOf } from '../../shared/decisions/placement/assignment-of.js';
import { expertsByWorker } from '../../shared/decisions/placement/experts-by-worker.js';
import { groupForLayer } from '../../shared/decisions/placement/plan-placement.js';
import { passOfSequence } from '../../shared/wire/pass-rows.js';
import { dialAddress } from '../../shared/wire/addresses.js';
import { PEER_EPOCH_LIMIT, reportedEpoch } from '../../shared/wire/epochs.js';
import { ARRIVALS_OF_TENSOR_PEER } from '../../shared/wire/limits.js';
import { ArrivalBound } from '../../shared/transport/arrival-bound.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import { PeerGreeting } from '../../shared/transport/peer-greeting.js';
import { StreamAdmission } from '../../shared/transport/stream-admission.js';
import { STATUS_INTERVAL_MS } from '../../shared/wire/node-status.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type {
  AlignToken,
  BeginSequence,
  NodeIdentity,
  NodeStatus,
  Placement,
  Predict,
  Refusal,
  ShadowReply,
  ShadowRequest,
} from '../../shared/wire/messages.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import type { TakeRoster } from '../../engine/trust/take-roster.js';
import type { Predictor, PredictorEvents } from '../predictor/predictor.js';
import type { PassPrediction } from '../predictor/pass-predictions.js';
import type { Draft } from '../predictor/shadow-sequence.js';
import { PredictionDealer, type SequenceDealing } from './prediction-dealer.js';
import type { WorkerLinks } from './worker-links.js';

type MainStream = PeerStream<ShadowReply, ShadowRequest>;

export interface ShadowServiceOptions {
  identity(): NodeIdentity;
  /** Counters of the daemon, for status. */
  status(epoch: number): NodeStatus;
  shape: ModelShape;
  createPredictor(events: PredictorEvents): Predictor;
  workers: WorkerLinks;
  /** Takes the cluster's roster from main. */
  takeRoster: TakeRoster;
  runtime: Runtime;
  log: Logger;
  /** The device does not work any more; main has been notified. */
  onDeviceLost?: (error: OdmoeError) => void;
}

/** The receivers of a sequence's predictions. */
interface SequenceTelling extends SequenceDealing {
  /** Main runs it together with other sequences, and announces its experts to the workers itself. */
  joint: boolean;
  /** Predictions for passes below this position have been sent to workers. */
  sentBelow: number;
}

/** Serves one main at a time: runs its sequences, and sends the predicted experts to it and to the workers. */
export class ShadowService implements PredictorEvents {
  readonly predictor: Predictor;
  private main: { stream: MainStream; identity: NodeIdentity; statusTimer: Timer } | null = null;
  private placement: Placement | null = null;
  private knownMain: string | null = null;
  /** The dealer of the current placement. */
  private dealer: PredictionDealer | null = null;
  /** The receivers of the predictions of each sequence that main has open. */
  private readonly tellings = new Map<number, SequenceTelling>();
  /** Highest epoch of the placements that any main has published. */
  private highestEpoch = 0;
  private stopped = false;
  private readonly greeting: PeerGreeting;
  private readonly admission: StreamAdmission;
  private readonly streams = new Set<MainStream>();

  constructor(private readonly options: ShadowServiceOptions) {
    this.predictor = options.createPredictor(this);
    this.admission = new StreamAdmission(options.runtime);
    this.greeting = new PeerGreeting(
      () => options.identity(),
      (peer) => this.refuseMain(peer),
      options.runtime,
      options.log,
    );
  }

  get hasMain(): boolean {
    return this.main !== null;
  }

  /** The address of the main that opened a stream last; null: none has. */
  get mainAddress(): string | null {
    return this.knownMain;
  }

  /** Counts of what main's sequences hold here. */
  get openCounts(): Record<string, number> {
    return { ...this.predictor.openCounts, tellings: this.tellings.size, dealtPasses: this.dealer?.openCount ?? 0 };
  }

  /** Takes a stream that a node has opened to this daemon. */
  accept(stream: MainStream, context: PeerContext): void {
    if (this.stopped) {
      stream.close(new OdmoeError('SHADOW_LOST', 'the shadow is stopping'));
      return;
    }
    const left = this.admission.admit(stream, context);
    if (left === null) return;
    this.streams.add(stream);
    const helloCame = this.greeting.awaitHello(stream);
    stream.onClose((error) => {
      helloCame();
      left();
      this.streams.delete(stream);
      if (this.main?.stream === stream) this.mainGone(error);
    });
    stream.onMessage((request) => {
      helloCame();
      if (this.main?.stream === stream) this.receive(request);
      else this.greet(stream, request, context);
    });
  }

  onPrediction(sequence: number, prediction: PassPrediction, late: boolean): void {
    if (this.main === null) return;
    const { placement } = this;
    const { position, rows, layer, experts, critical, runUs } = prediction;
    const telling = this.tellings.get(sequence);
    const mainAnnounces = telling?.joint === true;
    // No worker loads experts for a pass that main is past.
    const isForWorkers = !late && !mainAnnounces;
    const workers = isForWorkers && telling !== undefined ? this.deal(sequence, telling, prediction) : [];
    const place = { ...passOfSequence(sequence, position, rows), layer };
    const message = {
      epoch: placement?.epoch ?? 0,
      ...place,
      experts,
      workers,
      ...(critical.length > 0 && { critical }),
    };
    if (isForWorkers && placement !== null) {
      this.tellWorkers(placement, message, prediction.again);
      if (telling !== undefined) telling.sentBelow = Math.max(telling.sentBelow, position + 1);
    }
    this.main.stream.send({ kind: 'predict', predict: { ...message, mainAnnounces, runUs } });
  }

  onDraft(sequence: number, draft: Draft): void {
    const epoch = this.placement?.epoch ?? 0;
    this.main?.stream.send({ kind: 'draft', draft: { epoch, sequence, ...draft } });
  }

  onRestart(sequence: number, position: number): void {
    this.dealer?.forget(sequence, position);
    const { epoch, workers } = this.placement ?? { epoch: 0, workers: [] };
    const restart = { epoch, sequence, position };
    const telling = this.tellings.get(sequence);
    // If main announces to the workers, they know only shadow's earlier predictions.
    const isForWorkers = telling?.joint !== true || position < telling.sentBelow;
    if (isForWorkers) for (const { id } of workers) this.options.workers.send(id, { kind: 'restart', restart });
    if (telling !== undefined) telling.sentBelow = Math.min(telling.sentBelow, position);
    this.main?.stream.send({ kind: 'restart', restart });
  }

  onPrefixKept(sequence: number, positions: number): void {
    this.main?.stream.send({ kind: 'prefixKept', prefixKept: { sequence, positions } });
  }

  onFailure(sequence: number, error: OdmoeError): void {
    this.options.log.error('sequence dropped', { sequence, error });
    this.forgetSequence(sequence);
    this.answerError(error, sequence, this.placement?.epoch ?? 0);
    if (error.code === 'DEVICE_LOST') this.options.onDeviceLost?.(error);
  }

  /** Idempotent; resolves when no pass runs any more. */
  async stop(): Promise<void> {
    this.stopped = true;
    for (const stream of [...this.streams]) stream.close();
    this.options.workers.place([]);
    await this.predictor.stop();
  }

  private greet(stream: MainStream, request: ShadowRequest, context: PeerContext): void {
    if (request.kind !== 'hello') {
      throw new OdmoeError('PROTOCOL_VIOLATION', `the first message to a shadow is ${request.kind}, not hello`);
    }
    const peer = request.hello;
    if (!this.greeting.admits(stream, peer, context)) return;
    // This is the same main again: its old stream is dead, but its end has not been noticed yet.
    this.main?.stream.close(new OdmoeError('PROTOCOL_VIOLATION', `main ${peer.id} has opened a newer stream`));
    stream.takeTensors();
    stream.boundArrivals(new ArrivalBound(ARRIVALS_OF_TENSOR_PEER, this.options.runtime));
    this.greeting.welcome(stream, { partialPack: false, highestEpoch: reportedEpoch(this.highestEpoch) });
    const statusTimer = this.options.runtime.every(STATUS_INTERVAL_MS, () => this.sendStatus());
    this.main = { stream, identity: peer, statusTimer };
    this.knownMain = dialAddress(peer.address, context.host);
    this.sendStatus();
    this.options.log.info('serving main', { main: peer.id, address: peer.address });
  }

  private refuseMain(peer: NodeIdentity): Refusal | null {
    const own = this.options.identity();
    if (peer.role !== 'ROLE_MAIN') {
      return { code: 'NODE_REFUSED', message: `shadow ${own.id} serves a main; ${peer.id} is ${peer.role}` };
    }
    if (this.main === null || this.main.identity.id === peer.id) return null;
    const message =
      `shadow ${own.id} serves main ${this.main.identity.id} already and takes no other: ` +
      `stop that one, or start another shadow for ${peer.id}`;
    return { code: 'NODE_REFUSED', message };
  }

  private mainGone(error: OdmoeError | null): void {
    this.main?.statusTimer.cancel();
    this.options.log.warn('main is gone', {
      main: this.main?.identity.id,
      reason: error?.message ?? 'it ended the stream',
    });
    this.main = null;
    this.placement = null;
    this.dealer = null;
    this.tellings.clear();
    this.predictor.clear();
    this.options.workers.place([]);
  }

  private receive(request: ShadowRequest): void {
    switch (request.kind) {
      case 'hello':
        throw new OdmoeError('PROTOCOL_VIOLATION', 'a second hello on one stream');
      case 'placement':
        this.takePlacement(request.placement);
        return;
      case 'begin':
        if (this.isCurrent(request.begin)) this.begin(request.begin);
        return;
      case 'token':
        if (this.isCurrent(request.token)) this.announceToken(request.token);
        return;
      case 'cacheRows':
        if (this.isCurrent(request.cacheRows)) this.predictor.addRows(request.cacheRows);
        return;
      case 'end':
        this.predictor.end(request.end.sequence);
        this.forgetSequence(request.end.sequence);
        this.sendStatus();
        return;
      case 'roster':
        this.options.takeRoster(request.roster.signed);
        return;
    }
  }

  private takePlacement(placement: Placement): void {
    // A main that has just connected does not go above an epoch that no main gives: its first placement is taken (Roster.goAbove).
    const beginsAnew = this.placement === null && this.highestEpoch > PEER_EPOCH_LIMIT;
    if (!beginsAnew && !this.isCurrent({ ...placement, sequence: 0 })) return;
    const { shape } = this.options;
    if (placement.layers !== shape.expertLayers || placement.experts !== shape.experts) {
      throw new OdmoeError(
        'PROTOCOL_VIOLATION',
        `a placement of ${placement.layers} layers with ${placement.experts} experts for a model of ${shape.expertLayers} with ` +
          `${shape.experts}: start main and shadow with the same pack`,
      );
    }
    if (this.dealer === null || placement.epoch !== this.placement?.epoch)
      this.dealer = new PredictionDealer(placement);
    this.placement = placement;
    this.highestEpoch = placement.epoch;
    this.options.workers.place(placement.workers);
  }

  private begin(begin: BeginSequence): void {
    const { sequence, spread, optimistic } = begin;
    this.forgetSequence(sequence);
    this.tellings.set(sequence, { spread, optimistic, joint: false, sentBelow: 0 });
    try {
      this.predictor.begin(begin);
    } catch (error) {
      this.onFailure(begin.sequence, toOdmoeError(error));
    }
  }

  private announceToken(token: AlignToken): void {
    const telling = this.tellings.get(token.sequence);
    if (telling !== undefined) telling.joint = token.joint === true;
    if (token.epoch === this.placement?.epoch) this.dealer?.noteCached(token.kept ?? []);
    this.predictor.announceToken(token);
  }

  /** Returns false, and notifies main, when the message belongs to an older placement. */
  private isCurrent(message: { epoch: number; sequence: number }): boolean {
    const current = this.highestEpoch;
    if (message.epoch >= current) return true;
    const text = `a message of placement epoch ${message.epoch} came when epoch ${current} holds; it was not acted on`;
    this.answerError(new OdmoeError('STALE_EPOCH', text), message.sequence, message.epoch);
    return false;
  }

  private deal(sequence: number, dealing: SequenceDealing, prediction: PassPrediction): number[] {
    return this.dealer?.deal(sequence, dealing, prediction) ?? [];
  }

  private forgetSequence(sequence: number): void {
    this.tellings.delete(sequence);
    this.dealer?.forget(sequence, 0);
  }

  /**
   * Sends each worker its own experts. `again`: workers of the group that have none now get the message, too, because others may have their earlier
   * experts now.
   */
  private tellWorkers(placement: Placement, predict: Predict, again: boolean): void {
    const { epoch, pass, rows, layer, workers = [], critical = [] } = predict;
    const group = groupForLayer(placement, layer);
    if (group.length === 0) return;
    const alsoWithout = again && workers.length === 0 ? group : [];
    for (const [workerId, experts] of expertsByWorker(assignmentOf(placement, predict), alsoWithout)) {
      const ofWorker = critical.filter((expert) => experts.includes(expert));
      const part = { epoch, pass, rows, layer, experts, ...(ofWorker.length > 0 && { critical: ofWorker }) };
      this.options.workers.send(workerId, { kind: 'predict', predict: part });
    }
  }

  private sendStatus(): void {
    this.main?.stream.send({ kind: 'status', status: this.options.status(this.placement?.epoch ?? 0) });
  }

  /** `sequence` is sent as the id of the request that the error answers. */
  private answerError(error: OdmoeError, sequence: number, epoch: number): void {
    const { code, message } = error;
    this.main?.stream.send({ kind: 'error', error: { code, message, requestId: sequence, epoch } });
  }
}
