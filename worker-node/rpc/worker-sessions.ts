import { allFinite } from '../../native/index.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import { expertRowSize, type ModelShape } from '../../shared/model/model-shape.js';
import { headLayerOf } from '../../engine/loading/head-layer.js';
import { layersOfWorker } from '../../shared/decisions/placement/plan-placement.js';
import { dialAddress } from '../../shared/wire/addresses.js';
import { reportedEpoch } from '../../shared/wire/epochs.js';
import { ARRIVALS_OF_TENSOR_PEER } from '../../shared/wire/limits.js';
import { ArrivalBound } from '../../shared/transport/arrival-bound.js';
import { PeerGreeting } from '../../shared/transport/peer-greeting.js';
import { StreamAdmission } from '../../shared/transport/stream-admission.js';
import type {
  Execute,
  NodeIdentity,
  Placement,
  Prospect,
  Refusal,
  StreamError,
  WorkerReply,
  WorkerRequest,
} from '../../shared/wire/messages.js';
import type { PeerContext } from '../../shared/transport/peer-context.js';
import type { PeerStream } from '../../shared/transport/peer-stream.js';
import type { PrecisionRule } from '../../shared/decisions/slices/plan-readings.js';
import { rowsOfExpert } from '../../shared/wire/pass-rows.js';
import type { Runtime } from '../../shared/base/runtime/runtime.js';
import type { TakeRoster } from '../../engine/trust/take-roster.js';
import type { ExpertService } from '../executor/expert-service.js';
import { PlacementEpoch } from './placement-epoch.js';

/** Bad requests that one stream may send before it is closed. */
export const MAX_VIOLATIONS = 100;

/** A worker's pack supply that takes main's address and prospects. */
export interface ProspectTaker {
  readonly isPartial: boolean;
  takeMain(reportedAddress: string): void;
  takeProspect(prospect: Prospect, reportedAddress: string): void;
}

type WorkerStream = PeerStream<WorkerReply, WorkerRequest>;

interface Session {
  readonly stream: WorkerStream;
  readonly helloCame: () => void;
  /** Gives the place of the stream back. */
  readonly left: () => void;
  /** The opener of the stream, as the transport knows it. */
  readonly context: PeerContext;
  peer: NodeIdentity | null;
  violations: number;
}

export interface WorkerSessionsOptions {
  readonly experts: ExpertService;
  readonly shape: ModelShape;
  /** The model's own head, whose experts this worker can run while they are here; null, or left out: it never can. */
  readonly draftHead?: { readonly isHere: boolean } | null;
  readonly identity: () => NodeIdentity;
  /** Sends the counters to main. Called when main's stream is open or a sequence has ended. */
  readonly tellStatus: () => void;
  /** Takes the cluster's roster from main. */
  readonly takeRoster: TakeRoster;
  readonly runtime: Runtime;
  readonly log: Logger;
  /** null: the worker fetches no experts. */
  readonly fetch: ProspectTaker | null;
}

/**
 * The streams of this worker's peers: one main and any number of shadows. It serves main's requests and refuses peers that do not belong to
 * this cluster. A request that cannot be served is answered with an error and does not affect other peers.
 */
export class WorkerSessions {
  private readonly epoch = new PlacementEpoch();
  private readonly greeting: PeerGreeting;
  private readonly admission: StreamAdmission;
  private main: Session | null = null;
  private knownMain: string | null = null;

  constructor(private readonly options: WorkerSessionsOptions) {
    const { identity, runtime, log } = options;
    this.admission = new StreamAdmission(runtime);
    this.greeting = new PeerGreeting(identity, (peer) => this.refuseRole(peer), runtime, log);
  }

  get hasMain(): boolean {
    return this.main !== null;
  }

  /** The address of the main that opened a stream last; null: none has. */
  get mainAddress(): string | null {
    return this.knownMain;
  }

  get counters(): { epoch: number; staleMessages: number; droppedPredictions: number; servesDraftHead: boolean } {
    const { current, staleMessages, droppedPredictions } = this.epoch;
    const servesDraftHead = this.options.draftHead?.isHere ?? false;
    return { epoch: current, staleMessages, droppedPredictions, servesDraftHead };
  }

  /** Number of predictions that wait for their placement. */
  get earlyPredictions(): number {
    return this.epoch.waiting;
  }

  serve(stream: WorkerStream, context: PeerContext): void {
    const left = this.admission.admit(stream, context);
    if (left === null) return;
    const session: Session = {
      stream,
      left,
      helloCame: this.greeting.awaitHello(stream),
      context,
      peer: null,
      violations: 0,
    };
    stream.onClose((error) => {
      this.closed(session, error);
    });
    stream.onMessage((message) => {
      try {
        this.receive(session, message);
      } catch (thrown) {
        this.answerFault(session, message, toOdmoeError(thrown));
      }
    });
  }

  sendToMain(reply: WorkerReply): void {
    this.main?.stream.send(reply);
  }

  private receive(session: Session, message: WorkerRequest): void {
    if (session.peer === null) {
      if (message.kind !== 'hello') throw violation(`The first message must be hello, and ${message.kind} came.`);
      this.greet(session, message.hello);
      return;
    }
    if (message.kind === 'predict' || message.kind === 'restart') {
      if (session.peer.role === 'ROLE_MAIN') throw violation(`Only shadow may send ${message.kind}.`);
      this.takeFromShadow(message);
      return;
    }
    if (session.peer.role !== 'ROLE_MAIN') throw violation(`Only main may send ${message.kind}.`);
    switch (message.kind) {
      case 'placement':
        return this.place(message.placement);
      case 'execute':
        this.epoch.requireCurrent(message.execute.epoch);
        checkExecute(message.execute, this.servedShape);
        checkReadings(message.execute, this.options.experts.rule);
        return this.options.experts.execute(message.execute, (reply) => {
          session.stream.send(reply);
        });
      case 'announce':
        checkExpectedExperts(message.announce, this.servedShape);
        this.epoch.requireCurrent(message.announce.epoch);
        this.options.experts.expect('main', message.announce);
        return;
      case 'release':
        this.epoch.requireCurrent(message.release.epoch);
        checkExpectedExperts(message.release, this.servedShape);
        this.options.experts.release(message.release);
        return;
      case 'end':
        this.epoch.forget(message.end.sequence);
        this.options.experts.end(message.end.sequence);
        // Report the counters now, and report again when no slot is in use.
        if (this.options.experts.counters.slotsInUse > 0) this.options.tellStatus();
        this.options.experts.whenSlotsEmpty(this.options.tellStatus);
        return;
      case 'prospect':
        this.requireShape(message.prospect.placement);
        return this.options.fetch?.takeProspect(
          message.prospect,
          dialAddress(session.peer.address, session.context.host),
        );
      case 'roster':
        return this.options.takeRoster(message.roster.signed);
      case 'hello':
        throw violation('A second hello came.');
    }
  }

  private greet(session: Session, peer: NodeIdentity): void {
    session.helloCame();
    if (!this.greeting.admits(session.stream, peer, session.context)) return;
    if (peer.role === 'ROLE_MAIN') {
      this.adoptMain(session, peer);
      session.stream.takeTensors();
      session.stream.boundArrivals(new ArrivalBound(ARRIVALS_OF_TENSOR_PEER, this.options.runtime));
    }
    session.peer = peer;
    this.options.log.info('serving a peer', { peer: peer.id, role: peer.role, address: peer.address });
    this.greeting.welcome(session.stream, {
      partialPack: this.options.fetch?.isPartial ?? false,
      highestEpoch: reportedEpoch(this.epoch.highest),
    });
    if (peer.role !== 'ROLE_MAIN') return;
    this.knownMain = dialAddress(peer.address, session.context.host);
    this.options.fetch?.takeMain(this.knownMain);
    this.options.tellStatus();
  }

  private refuseRole(peer: NodeIdentity): Refusal | null {
    const own = this.options.identity().id;
    const served = this.main?.peer;
    if (peer.role === 'ROLE_MAIN' && served !== undefined && served !== null && served.id !== peer.id) {
      const message =
        `worker "${own}" serves main "${served.id}" at ${served.address} and takes no other: stop one of the two mains, ` +
        `or give them clusters of different names`;
      return { code: 'NODE_REFUSED', message };
    }
    if (peer.role === 'ROLE_MAIN' || peer.role === 'ROLE_SHADOW') return null;
    return {
      code: 'NODE_REFUSED',
      message: `worker "${own}" serves main and shadow nodes, and "${peer.id}" is neither`,
    };
  }

  /** A main with the same id is the same main after a reconnect: all state from its earlier stream is void. */
  private adoptMain(session: Session, peer: NodeIdentity): void {
    const former = this.main;
    if (former !== null) {
      this.forgetMain();
      former.stream.close(new OdmoeError('CANCELLED', `main "${peer.id}" opened another stream to this worker`));
    }
    this.main = session;
  }

  private place(placement: Placement): void {
    this.epoch.requireAnnounceable(placement.epoch);
    if (placement.epoch === this.epoch.current) return;
    this.requireShape(placement);
    const due = this.epoch.advance(placement.epoch);
    this.options.experts.changeEpoch(layersOfWorker(this.withHeadLayer(placement), this.options.identity().id));
    for (const prediction of due) this.options.experts.expect('shadow', prediction);
  }

  /** The model, with the layer of its own head where this worker serves it. */
  private get servedShape(): ServedShape {
    const { shape, draftHead = null } = this.options;
    const { experts, expertLayers } = shape;
    const hiddenSize = expertRowSize(shape);
    return { experts, hiddenSize, expertLayers: draftHead?.isHere === true ? headLayerOf(shape) + 1 : expertLayers };
  }

  /** The layer of the model's own head belongs to a group, as if it were the model's next layer. */
  private withHeadLayer(placement: Placement): Placement {
    const { draftHead = null, shape } = this.options;
    return draftHead === null ? placement : { ...placement, layers: headLayerOf(shape) + 1 };
  }

  private requireShape({ layers, experts }: Placement): void {
    if (layers === this.options.shape.expertLayers && experts === this.options.shape.experts) return;
    throw violation(
      `A placement of ${layers} layers of ${experts} experts came, and this model has ` +
        `${this.options.shape.expertLayers} of ${this.options.shape.experts}.`,
    );
  }

  private takeFromShadow(message: Extract<WorkerRequest, { kind: 'predict' | 'restart' }>): void {
    if (message.kind === 'restart') {
      if (this.epoch.admitRestart(message.restart)) this.options.experts.restart(message.restart);
      return;
    }
    checkExpectedExperts(message.predict, this.options.shape);
    if (this.epoch.admit(message.predict)) this.options.experts.expect('shadow', message.predict);
  }

  private answerFault(session: Session, message: WorkerRequest, fault: OdmoeError): void {
    const peer = session.peer?.id ?? null;
    const { requestId, epoch } = requestOf(message);
    const error: StreamError = { code: fault.code, message: fault.message, requestId, epoch };
    // When the placement changes while messages are under way, no peer is at fault.
    if (fault.code === 'STALE_EPOCH') this.options.log.debug('a stale message came', { peer, epoch });
    else this.options.log.warn('a request could not be served', { peer, kind: message.kind, error: fault });
    session.stream.send({ kind: 'error', error });
    if (fault.code === 'PROTOCOL_VIOLATION') session.violations += 1;
    if (session.peer === null || session.violations >= MAX_VIOLATIONS) session.stream.close(fault);
  }

  private closed(session: Session, error: OdmoeError | null): void {
    session.helloCame();
    session.left();
    if (session.peer === null) return;
    this.options.log.info('a peer is gone', {
      peer: session.peer.id,
      role: session.peer.role,
      ...(error === null ? {} : { error }),
    });
    if (this.main === session) this.forgetMain();
  }

  private forgetMain(): void {
    this.main = null;
    this.epoch.reset();
    this.options.experts.loseMain();
  }
}

function requestOf(message: WorkerRequest): { requestId: number; epoch: number } {
  switch (message.kind) {
    case 'execute':
      return message.execute;
    case 'predict':
      return { requestId: 0, epoch: message.predict.epoch };
    case 'restart':
      return { requestId: 0, epoch: message.restart.epoch };
    case 'announce':
      return { requestId: 0, epoch: message.announce.epoch };
    case 'release':
      return { requestId: 0, epoch: message.release.epoch };
    case 'placement':
      return { requestId: 0, epoch: message.placement.epoch };
    case 'hello':
    case 'prospect':
    case 'end':
    case 'roster':
      return { requestId: 0, epoch: 0 };
  }
}

/** `hiddenSize`: that of the rows of experts. */
type ServedShape = Pick<ModelShape, 'expertLayers' | 'experts' | 'hiddenSize'>;

function violation(message: string): OdmoeError {
  return new OdmoeError('PROTOCOL_VIOLATION', message);
}

/** Checks whether a request fits the model that this worker serves, which the decoder does not know. Each check throws PROTOCOL_VIOLATION. */
function checkExecute(execute: Execute, shape: ServedShape): void {
  checkLayer(execute.layer, shape);
  for (const { expert } of execute.experts) checkExpert(expert, shape);
  if (execute.hiddenSize !== shape.hiddenSize) {
    throw unfitting(`hidden states of ${execute.hiddenSize} values, and this model's have ${shape.hiddenSize}`);
  }
  if (execute.dtype !== 'TENSOR_TYPE_F32') {
    throw unfitting(`wire: bf16 is not yet supported (${execute.dtype} came): set wire to f32`);
  }
  if (!allFinite(execute.hidden)) throw unfitting('hidden states that are no finite numbers');
}

/** Checks whether the executes read what this worker has of its experts. */
function checkReadings({ experts, rows }: Execute, rule: PrecisionRule | null): void {
  if (rule !== null && rule.kind !== 'low') return;
  for (const asked of experts) {
    const upper = (asked.upper ?? []).length;
    if (rule === null && upper > 0) {
      throw unfitting(`rows that read upper slices, and this worker computes experts exactly: give it main's quality`);
    }
    if (rule !== null && upper < rowsOfExpert(asked, rows)) {
      throw unfitting(`rows that read lower slices, and this worker has upper ones alone: give it main's quality`);
    }
  }
}

function checkExpectedExperts(
  { layer, experts }: { layer: number; experts: readonly number[] },
  shape: ServedShape,
): void {
  checkLayer(layer, shape);
  if (experts.length > shape.experts) throw unfitting(`${experts.length} experts, and a layer has ${shape.experts}`);
  for (const expert of experts) checkExpert(expert, shape);
}

function checkLayer(layer: number, shape: ServedShape): void {
  if (layer >= shape.expertLayers)
    throw unfitting(`layer ${layer}, and this model has layers 0 to ${shape.expertLayers - 1}`);
}

function checkExpert(expert: number, shape: ServedShape): void {
  if (expert >= shape.experts)
    throw unfitting(`expert ${expert}, and this model has experts 0 to ${shape.experts - 1}`);
}

function unfitting(what: string): OdmoeError {
  return new OdmoeError('PROTOCOL_VIOLATION', `A request to this worker names ${what}.`);
}
