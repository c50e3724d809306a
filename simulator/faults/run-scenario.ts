import { REFUSED_DELAY_MS } from '../../shared/transport/discovery/join-loop.js';
import { mostActiveSequences, MAX_DRAFT_ROWS } from '../../shared/settings/setting-limits.js';
import { UNRESPONSIVE_PAUSE_MS } from '../../main-node/cluster/membership.js';
import { DISTRUST_EVENT } from '../../main-node/cluster/roster.js';
import { ownWorkerId } from '../../main-node/own-worker.js';
import { toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Pack } from '../../packs/format/open-pack.js';
import { heldSlices } from '../../packs/slices/open-slices.js';
import { isRecurrent, type ModelShape } from '../../shared/model/model-shape.js';
import type { GenerateRequest, Placement } from '../../shared/wire/messages.js';
import { REPLIES_HELD_LIMIT, STREAM_BACKLOG_LIMIT_BYTES } from '../../shared/wire/limits.js';
import { STATUS_INTERVAL_MS } from '../../shared/wire/node-status.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { VirtualRuntime } from '../../shared/base/runtime/virtual-runtime.js';
import { SimulatedCluster, type SimulatedAnswer } from '../cluster/simulated-cluster.js';
import type { SimulatedNode } from '../cluster/simulated-node.js';
import type { MessageTap } from '../network/channel.js';
import { DrawnLinks } from '../network/link-model.js';
import type { OperationLog } from '../timing/operation-log.js';
import { RecordingLinks } from '../timing/recording-links.js';
import { checkAnswer } from './check-invariants.js';
import type { Violation } from './accounts/violation.js';
import { checkQuiet, checkStopped, idleTimers, quietMs } from './check-nothing-left.js';
import { checkAccounts } from './accounts/check-accounts.js';
import { checkSizes, type NodeSizes, sizesAtRest } from './check-sizes.js';
import { checkLoads, checkWorkers, type Statuses } from './check-workers.js';
import { AlignmentWatch } from './accounts/alignment-watch.js';
import { checkLinkBytes } from './accounts/check-link-bytes.js';
import { EpochWatch } from './accounts/epoch-watch.js';
import { FetchWatch } from './accounts/fetch-watch.js';
import { CachedNewsWatch } from './accounts/cached-news-watch.js';
import { AnnouncementWatch } from './accounts/announcement-watch.js';
import { drawnMaps } from './drawn-maps.js';
import { Recorder } from './accounts/recorder.js';
import { holdsNode } from './draw-budget.js';
import { drawRequest } from './draw-request.js';
import { countersOf, type MainCounters } from './accounts/main-counters.js';
import { DrainFaults } from './drain-faults.js';
import { FaultInjector, SECOND_MAIN } from './inject-faults.js';
import type { ReferenceAnswers } from './reference-answers.js';
import { ScenarioWorld, type LoggedLine } from './scenario-world.js';
import { addHappened, happenedAt, NOTHING_HAPPENED, type Happened, type Seen } from './happened.js';
import { HARMLESS_FAULTS, type FaultKind, type Scenario, type ScenarioRequest } from './scenario.js';
import { ScenarioTrust } from './scenario-trust.js';
import { NO_TRUST_EVENTS, TrustFaults } from './trust-faults.js';
import { checkUsedNodes, HeardNodes } from './check-used-nodes.js';
import { MAIN_ID } from '../simulate/cluster-set-up.js';
import { REMEMBERED_RANGES } from '../../shadow-node/predictor/alignment.js';
import { HANDLE_KINDS } from './device-handles.js';

/** A node of such a fault is started by it. */
const STARTS: ReadonlySet<FaultKind> = new Set(['join', 'letIn']);

const GIVE_FALSELY: ReadonlySet<FaultKind> = new Set(['falseValues', 'falseNumbers']);

/** Number of passes of an answer that shadow may have to remember: finished passes that main still names, the current one, and those ahead. */
const KNOWN_PASSES = REMEMBERED_RANGES + 3;
/** Layers of the deepest tiny model. */
const MOST_LAYERS = 4;
/** Number of other remembered positions and passes, beside the rows of the known passes. */
const OTHERS = 4;
/** Prefix of the count names of main's own worker. */
const OF_OWN_WORKER = 'ownWorker.';

/** Most entries that a node may remember for one answer under way, however long the answer is. */
function bounds({ nodes }: Scenario): Readonly<Record<string, number>> {
  const rows = nodes[0]?.settings.drafting.rows ?? 1;
  const mostRows = rows === 'auto' ? MAX_DRAFT_ROWS : rows;
  return {
    // Positions, and the passes that they belong to.
    positions: 2 * KNOWN_PASSES * mostRows + OTHERS,
    drafts: 2 * mostRows + OTHERS,
    rememberedDrafts: 2 * mostRows + OTHERS,
    rememberedPredictions: KNOWN_PASSES * MOST_LAYERS,
  };
}

/** Checks, while answers run, the counts that must not grow with the length of an answer. `main` holds all sequences, other nodes some of them. */
function checkBounds(cluster: SimulatedCluster, scenario: Scenario): string[] {
  const allowed = bounds(scenario);
  const sequences = Math.max(1, cluster.nodes.get(MAIN_ID)?.openCounts()?.['sequences'] ?? 1);
  const problems: string[] = [];
  for (const node of cluster.nodes.values()) {
    for (const [name, count] of Object.entries(node.openCounts() ?? {})) {
      const most =
        (allowed[name.replace(OF_OWN_WORKER, '')] ?? Infinity) *
        Math.max(sequences, node.openCounts()?.['sequences'] ?? 0);
      if (count > most)
        problems.push(`${node.id} remembers ${count} ${name} for ${sequences} sequences, and ${most} may be`);
    }
  }
  return problems;
}

/** Longest time after the last fault until every request must have ended. */
export const ANSWER_BOUND_MS = 90_000;
/** Time after the last fault from which the cluster must answer every request. */
export const RECOVERY_MS = 10_000;
/** Longest time for a stopped cluster to give all resources back. */
const STOP_BOUND_MS = 10_000;
/** More events than this mean an endless loop. */
const EVENT_LIMIT = 3_000_000;
const PROBES = 2;

export interface ScenarioOutcome {
  violations: Violation[];
  /** Hash of the history. */
  history: string;
  lines: readonly string[];
  events: number;
  happened: Happened;
}

/** Runs a scenario to its end and checks the invariants. `operations`: log for the operations of the nodes. */
export async function runScenario(
  scenario: Scenario,
  references: ReferenceAnswers,
  keepLines = 0,
  operations: OperationLog | null = null,
): Promise<ScenarioOutcome> {
  const random = new SeededRandom(scenario.seed).fork('links');
  const isPatient = new SeededRandom(scenario.seed).fork('clients').chance(0.5);
  const pack = await references.pack(scenario.model);
  const trust = scenario.hasAuthority ? await trustOf(scenario, pack) : null;
  const cluster = new SimulatedCluster({
    clientTrust: trust?.clients() ?? null,
    links: () => {
      const links = new DrawnLinks(random, scenario.link);
      return operations === null ? links : new RecordingLinks(links, operations);
    },
    seed: scenario.seed,
    keepLines,
    // Wait like HTTP clients, or like the daemons' client.
    ...(isPatient ? { clientPatienceMs: Infinity } : {}),
  });
  const world = new ScenarioWorld(
    scenario,
    (model) => references.pack(model),
    operations,
    () => cluster.clock.nowMs,
    trust,
  );
  const faults = trust && new TrustFaults(cluster, trust, scenario);
  const { shape } = pack;
  const run = new ScenarioRun(scenario, { cluster, world, trust: faults }, references, shape);
  try {
    await run.all();
  } catch (thrown) {
    run.violate('the cluster comes to rest', toOdmoeError(thrown).message);
  } finally {
    for (const node of cluster.nodes.values()) if (node.isAlive) node.kill();
    await world.dispose();
  }
  const { history } = cluster;
  const { violations, happened } = run;
  return { violations, history: history.digest(), lines: history.lines, events: history.eventCount, happened };
}

/** The message asks a worker for experts of the model's own head. */
function isOfHead([way, , , message]: Parameters<MessageTap>, { expertLayers }: ModelShape): boolean {
  return way === 'sent' && message.kind === 'execute' && message.execute.layer >= expertLayers;
}

/** The authority of a cluster whose nodes have joined, but for those that are let in later. */
async function trustOf({ nodes, faults }: Scenario, pack: Pack): Promise<ScenarioTrust> {
  const isLate = (id: string): boolean => faults.some(({ kind, node }) => kind === 'letIn' && node === id);
  const listed = nodes.map(({ settings: { role, id } }) => ({ role, id })).filter(({ id }) => !isLate(id));
  const slices = await heldSlices(pack);
  return new ScenarioTrust(CLUSTER, listed, [pack.packDigest, ...(slices === null ? [] : [slices.digest])]);
}

/** The name of every scenario's cluster. */
const CLUSTER = 'simulated';

/** A scenario's cluster, its disks and devices, and the events of its authority; null: it has none. */
interface Simulated {
  cluster: SimulatedCluster;
  world: ScenarioWorld;
  trust: TrustFaults | null;
}

class ScenarioRun {
  private readonly cluster: SimulatedCluster;
  private readonly world: ScenarioWorld;
  private readonly trust: TrustFaults | null;
  readonly violations: Violation[] = [];
  readonly happened: Happened = { ...NOTHING_HAPPENED };
  private requests: { drawn: ScenarioRequest; request: GenerateRequest }[] = [];
  private readonly asked: { answer: SimulatedAnswer; request: GenerateRequest; probe: boolean }[] = [];
  private readonly injector: FaultInjector;
  private readonly drains: DrainFaults;
  private hasGrown = false;
  private readonly alignment: AlignmentWatch;
  private readonly epochs: EpochWatch;
  private readonly announcements = new AnnouncementWatch(MAIN_ID);
  private readonly cachedNews = new CachedNewsWatch(MAIN_ID);
  private readonly heard: HeardNodes;
  private readonly fetches: FetchWatch;
  private readonly rests: HeldAtRest[] = [];
  /** Sizes at the first rest. */
  private firstSizes: NodeSizes | null = null;
  /** Number of answers that have been checked against the record. */
  private accounted = 0;
  private readonly recorder = new Recorder(MAIN_ID);
  private headExecutes = 0;
  /** Main's counters when the record began. */
  private countersBefore: MainCounters = new Map();

  constructor(
    private readonly scenario: Scenario,
    { cluster, world, trust }: Simulated,
    private readonly references: ReferenceAnswers,
    private readonly shape: ModelShape,
  ) {
    this.cluster = cluster;
    this.world = world;
    this.trust = trust;
    const recurrent = shape.layers.map(({ mixer }) => isRecurrent(mixer));
    this.alignment = new AlignmentWatch(MAIN_ID, (layer) => recurrent[layer] === true);
    this.drains = new DrainFaults(cluster);
    this.injector = new FaultInjector(cluster, world, scenario, trust, this.drains);
    this.heard = new HeardNodes(() => cluster.clock.nowMs);
    const stopped = scenario.faults.filter(({ kind }) => kind === 'stopAndContinue').map(({ node }) => node);
    const runtimeOf = (id: string): VirtualRuntime | undefined => cluster.nodes.get(id)?.runtime;
    this.fetches = new FetchWatch(runtimeOf, cluster.network.packSources, new Set(stopped));
    this.epochs = new EpochWatch((id) => (cluster.nodes.get(id) ?? mainOf(cluster, id))?.runtime);
    cluster.network.tap = (...said) => {
      this.recorder.messages(...said);
      if (isOfHead(said, shape)) this.headExecutes += 1;
      this.epochs.messages(...said);
      this.announcements.messages(...said);
      this.cachedNews.messages(...said);
      this.heard.messages(...said);
      this.drains.messages(...said);
      this.fetches.messages(...said);
      this.alignment.messages(...said);
      trust?.messages(...said);
    };
  }

  violate(invariant: string, detail: string): void {
    this.violations.push({ invariant, detail });
  }

  async all(): Promise<void> {
    const { clock } = this.cluster;
    this.requests = await requestsOf(this.scenario, this.references);
    this.startNodes();
    const devices = this.world.devices.get(MAIN_ID);
    if (devices !== undefined) devices.passTap = this.recorder;
    let placement = this.isCalm() ? this.recorder.begin() : null;
    this.injector.schedule();
    this.scheduleRequests();
    for (const atMs of this.scenario.restsMs) clock.schedule(atMs, () => this.noteRest());
    const { calmMs } = this.scenario;
    await this.until(() => clock.nowMs >= calmMs && this.isAllOver(), calmMs + ANSWER_BOUND_MS);
    if (!this.isAllOver()) this.violate('every answer ends in time', this.describeOpen());
    await this.recover();
    this.checkNodes();
    if (this.isCalm()) await this.checkAccounts(placement);
    this.accounted = this.asked.length;
    const { statuses } = this.recorder;
    this.countersBefore = await countersOf(this.cluster.nodes.get(MAIN_ID));
    placement = this.recorder.begin();
    const atRest = idleTimers(this.cluster);
    const loggedAtRest = this.world.logged.length;
    this.firstSizes ??= sizesAtRest(this.cluster);
    this.askProbes();
    await this.until(() => this.isAllOver(), clock.nowMs + ANSWER_BOUND_MS);
    if (!this.isAllOver()) this.violate('every answer ends in time', this.describeOpen());
    await this.checkAnswers();
    await this.until(() => false, clock.nowMs + quietMs(this.world.logged.slice(loggedAtRest)));
    await this.checkAccounts(placement);
    await this.checkLinks();
    if (this.rests.length > 0) this.noteRest();
    this.violations.push(...checkRests(this.rests));
    const isRemoved = (id: string): boolean => this.isRemoved(id);
    this.violations.push(...checkUsedNodes(this.cluster, this.scenario, this.heard, isRemoved));
    this.violations.push(...(this.trust?.check((id) => this.heard.isHeard(id)) ?? []));
    this.violations.push(...checkQuiet(this.cluster, this.world, this.scenario, atRest));
    this.violations.push(...checkSizes(this.firstSizes, sizesAtRest(this.cluster)));
    this.checkWorkers(statuses);
    addHappened(this.happened, await happenedAt(this.cluster.nodes.get(MAIN_ID), this.seen()));
    await this.stopNodes();
    this.checkLogs();
  }

  /** Waits for recovery. After an execute has timed out, main avoids the worker for some time, so the wait is longer; the log shows timeouts. */
  private async recover(): Promise<void> {
    const { clock } = this.cluster;
    await this.until(() => false, Math.max(this.scenario.calmMs + RECOVERY_MS, clock.nowMs));
    // A node that a main with an old roster has refused asks again after a pause, and may be refused once more before main has the newest one.
    if (this.nodesDown().length > 0) await this.until(() => false, clock.nowMs + 2 * REFUSED_DELAY_MS);
    const leavesAlone = this.world.logged.some(({ fields }) => codeOf(fields['error']) === 'TIMEOUT');
    if (leavesAlone) await this.until(() => false, clock.nowMs + UNRESPONSIVE_PAUSE_MS);
    // Main counts an answer just after its client has it all, and checks of executions go on. If the accounts began meanwhile, they would compare
    // counts from before this work with messages from after it.
    await this.until(() => !this.mainIsBusy, clock.nowMs + ANSWER_BOUND_MS);
    await this.until(() => this.recorder.areStatusesCurrent, clock.nowMs + 2 * STATUS_INTERVAL_MS);
  }

  private get mainIsBusy(): boolean {
    const open = this.cluster.nodes.get(MAIN_ID)?.openCounts() ?? {};
    return ['requests', 'sequences', 'checks'].some((name) => (open[name] ?? 0) > 0);
  }

  private until(isDone: () => boolean, untilMs: number): Promise<void> {
    return this.cluster.clock.run(isDone, { untilMs, events: EVENT_LIMIT });
  }

  private startNodes(): void {
    for (const drawn of this.scenario.nodes) {
      const { settings, startMs, wallSkewMs } = drawn;
      const node = this.cluster.add(this.world.settingsOf(drawn), this.world.of(drawn));
      const joins = this.scenario.faults.some(({ kind, node: id }) => STARTS.has(kind) && id === settings.id);
      if (!joins) this.cluster.clock.schedule(startMs, () => node.isAlive || node.start(wallSkewMs));
    }
  }

  private scheduleRequests(): void {
    const { clock } = this.cluster;
    for (const { drawn, request } of this.requests) {
      const { atMs, cancelAfterMs, readMs } = drawn;
      clock.schedule(atMs, () => {
        const answer = this.cluster.ask(this.cluster.node(MAIN_ID).address, request, { readMs, onToken: this.onToken });
        this.asked.push({ answer, request, probe: false });
        if (cancelAfterMs !== null) clock.schedule(atMs + cancelAfterMs, () => answer.cancel());
      });
    }
  }

  /** Asks requests after all faults are over: every one must be answered. */
  private askProbes(): void {
    const random = new SeededRandom(this.scenario.seed).fork('probes');
    for (let probe = 0; probe < PROBES; probe++) {
      const request = drawRequest(random);
      const answer = this.cluster.ask(this.cluster.node(MAIN_ID).address, request, { onToken: this.onToken });
      this.asked.push({ answer, request, probe: true });
    }
  }

  private noteRest(): void {
    this.rests.push(heldAtRest(this.cluster, this.world));
    this.firstSizes ??= sizesAtRest(this.cluster);
  }

  /** Reports only the first growth: a count beyond its bound continues to grow. */
  private readonly onToken = (): void => {
    const [grown] = this.hasGrown ? [] : checkBounds(this.cluster, this.scenario);
    if (grown === undefined) return;
    this.hasGrown = true;
    this.violate('what is held is bounded', grown);
  };

  private isAllOver(): boolean {
    return this.asked.every(({ answer }) => answer.overMs !== null);
  }

  private describeOpen(): string {
    const open = this.asked.filter(({ answer }) => answer.overMs === null);
    return open.map(({ answer }) => `asked at ${answer.askedMs} ms, ${answer.tokens.length} tokens so far`).join('; ');
  }

  /** Checks the answers since the record began. */
  private async checkAccounts(placement: Placement | null): Promise<void> {
    const [main] = this.scenario.nodes;
    if (main === undefined) return;
    const { settings } = main;
    const { shape } = this;
    const hasMaps = drawnMaps(this.scenario) === 'sound';
    const answers = this.asked.slice(this.accounted);
    const after = await countersOf(this.cluster.nodes.get(MAIN_ID));
    const { events } = this.recorder;
    const before = this.countersBefore;
    this.violations.push(...checkAccounts({ events, settings, hasMaps, shape, placement, answers, before, after }));
  }

  private async checkLinks(): Promise<void> {
    const main = this.cluster.node(MAIN_ID);
    const carried = this.cluster.network.carriedBytes(main.runtime);
    for (const detail of checkLinkBytes(await countersOf(main), carried)) this.violate('accounts add up', detail);
  }

  /** `before`: statuses of the nodes when the record began. */
  private checkWorkers(before: Statuses): void {
    const { events, statuses: after } = this.recorder;
    // The last status of a removed node is old.
    const heard = new Map([...after].filter(([id]) => !this.isRemoved(id)));
    this.violations.push(...checkLoads(this.scenario, this.world, heard));
    this.violations.push(...checkWorkers(this.scenario, events, { before, after, layers: this.shape.expertLayers }));
  }

  private seen(): Seen {
    const { sharedPasses = 0, brokenSharedPasses = 0 } = this.world.devices.get(MAIN_ID) ?? {};
    const cancelled = this.asked.filter(({ answer }) => answer.error?.code === 'CANCELLED' && answer.tokens.length > 0);
    const falsePieces = [...this.world.packPieceFaults.values()].reduce((sum, { sent }) => sum + sent, 0);
    const statuses = [...this.recorder.statuses.values()];
    const fetchedBytes = statuses.reduce((sum, { fetchReceivedBytes }) => sum + fetchReceivedBytes, 0);
    return {
      sharedPasses,
      brokenSharedPasses,
      cancelledAnswers: cancelled.length,
      falsePieces,
      fetchedBytes,
      headExecutes: this.headExecutes,
      mayGo: this.drains.mayGo,
      ...(this.trust?.happened ?? NO_TRUST_EVENTS),
    };
  }

  private isCalm(): boolean {
    return this.scenario.faults.every(({ kind }) => HARMLESS_FAULTS.has(kind)) && this.isUndisturbed();
  }

  private async checkAnswers(): Promise<void> {
    for (const { answer, request, probe } of this.asked) {
      const reference = await this.references.answer(this.scenario, request);
      const mustSucceed = probe || this.isCalm();
      this.violations.push(
        ...checkAnswer(answer, reference, {
          mustSucceed,
          scenario: this.scenario,
          mayHoldLie: this.world.lies.mayHold(answer),
        }),
      );
    }
  }

  /** True if no client goes away, no queue is full, and all nodes run from the beginning. */
  private isUndisturbed(): boolean {
    const { requests, nodes } = this.scenario;
    const { maxActiveSequences, maxQueuedRequests } = nodes[0]?.settings.main ?? {
      maxActiveSequences: 0,
      maxQueuedRequests: 0,
    };
    return (
      requests.every(({ cancelAfterMs }) => cancelAfterMs === null) &&
      requests.length <= mostActiveSequences(maxActiveSequences) + maxQueuedRequests &&
      nodes.every(({ startMs, fetches }) => startMs === 0 && !fetches)
    );
  }

  private async stopNodes(): Promise<void> {
    const { clock, nodes } = this.cluster;
    let stopped = 0;
    const living = [...nodes.values()].filter(({ isAlive }) => isAlive);
    const runtimes = living.map((node) => ({ node, runtime: node.runtime }));
    for (const node of living) void node.stop().then(() => (stopped += 1));
    await this.until(() => stopped === living.length, clock.nowMs + STOP_BOUND_MS);
    if (stopped < living.length)
      this.violate(
        'every node stops in time',
        living
          .filter(({ isAlive }) => isAlive)
          .map(({ id }) => id)
          .join(' '),
      );
    this.violations.push(...checkStopped(this.cluster, this.world, runtimes));
  }

  private isRemoved(id: string): boolean {
    return this.trust?.isRemoved(id) === true;
  }

  /** Nodes of the cluster that do not run, but for those that have too little memory. */
  private nodesDown(): SimulatedNode[] {
    return [...this.cluster.nodes.values()].filter(
      (node) =>
        node.id !== SECOND_MAIN &&
        !node.isReady &&
        !this.isRemoved(node.id) &&
        !(node.failure?.code === 'DEVICE_OUT_OF_MEMORY' && !holdsNode(this.scenario.model, node.settings)),
    );
  }

  /** Checks that all nodes of the cluster run. */
  private checkNodes(): void {
    for (const node of this.nodesDown()) {
      const why = node.failure === null ? 'it does not come up' : `${node.failure.code}: ${node.failure.message}`;
      this.violate('every node runs again', `${node.id}: ${why}`);
    }
  }

  /** Checks that main does not set aside a worker that gave right values. */
  private checkTrust(): void {
    const liars = new Set(
      this.scenario.faults.flatMap(({ kind, node }) => (GIVE_FALSELY.has(kind) ? [node, ownWorkerId(node)] : [])),
    );
    for (const { event, fields } of this.world.logged) {
      const worker = String(fields['worker']);
      if (event === DISTRUST_EVENT && !liars.has(worker))
        this.violate('healthy workers are believed', `${worker}: ${String(fields['why'])}`);
    }
  }

  private checkLogs(): void {
    const { mostUnread, mostBacklogBytes } = this.cluster.network;
    if (mostUnread > REPLIES_HELD_LIMIT)
      this.violate('queues are bounded', `${mostUnread} replies waited for a reader, and ${REPLIES_HELD_LIMIT} may`);
    if (mostBacklogBytes > STREAM_BACKLOG_LIMIT_BYTES)
      this.violate('queues are bounded', `${mostBacklogBytes} bytes were under way to a peer`);
    for (const detail of this.alignment.violations) this.violate('alignment has no gaps', detail);
    for (const detail of this.epochs.violations) this.violate('epochs only grow', detail);
    for (const detail of this.announcements.violations)
      this.violate('announced experts are requested or released', detail);
    for (const detail of this.drains.violations) this.violate('a node that may go gets no work', detail);
    for (const detail of this.fetches.violations) this.violate('fetched experts are reported', detail);
    for (const detail of this.cachedNews.violations) this.violate('shadow hears what workers keep', detail);
    this.violations.push(...checkBlame(this.scenario, this.world.logged));
    this.checkTrust();
    for (const { node, event, fields } of this.world.logged) {
      const error = fields['error'];
      if ((codeOf(error) ?? fields['code']) === 'INTERNAL')
        this.violate(
          'no defect shows',
          `${node}: ${event}: ${error instanceof Error ? (error.stack ?? error.message) : ''}`,
        );
    }
    for (const [id, { violations }] of this.world.devices)
      for (const detail of violations) this.violate('slots and budgets hold', `${id}: ${detail}`);
  }
}

/** Completes the requests: a next turn gets the earlier turn and the engine's answer to it before its own prompt. */
function requestsOf(
  scenario: Scenario,
  references: ReferenceAnswers,
): Promise<{ drawn: ScenarioRequest; request: GenerateRequest }[]> {
  return Promise.all(
    scenario.requests.map(async (drawn) => {
      const { request, follows } = drawn;
      if (follows === null) return { drawn, request };
      const { promptTokenIds, tokens } = await references.answer(scenario, follows);
      const before = [...promptTokenIds, ...tokens.map(({ tokenId }) => tokenId)];
      return { drawn, request: { ...request, promptTokenIds: [...before, ...request.promptTokenIds] } };
    }),
  );
}

/** The main that runs the own worker with this id. */
function mainOf({ nodes }: SimulatedCluster, id: string): SimulatedNode | undefined {
  return [...nodes.values()].find((node) => ownWorkerId(node.id) === id);
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : null;
}

/** Log reasons of a node that gave up a peer because of its silence. */
const JUDGED = /no answer to an execute|(?:has|did) not answer|no (?:welcome|connection|hello)\b.* within/;

/** If the only fault is that one node was stopped, that node must blame no other node, because all others were running. */
export function checkBlame({ faults }: Pick<Scenario, 'faults'>, logged: readonly LoggedLine[]): Violation[] {
  const [stopped, ...others] = new Set(faults.map(({ node }) => node));
  if (stopped === undefined || others.length > 0 || faults.some(({ kind }) => kind !== 'stopAndContinue')) return [];
  return logged.flatMap(({ node, event, fields }) => {
    const { reason } = fields;
    if (node !== stopped || typeof reason !== 'string' || !JUDGED.test(reason)) return [];
    return [{ invariant: 'who stood still blames nobody', detail: `${node}: ${event}: ${reason}` }];
  });
}

/** Counts of everything that a cluster holds at rest, by node and name. */
type HeldAtRest = ReadonlyMap<string, number>;

function heldAtRest(cluster: SimulatedCluster, world: ScenarioWorld): HeldAtRest {
  const held = new Map<string, number>();
  for (const node of cluster.nodes.values()) {
    if (!node.isReady) continue;
    const { id, runtime } = node;
    const note = (name: string, count: number): unknown => held.set(`${name} of ${id}`, count);
    for (const [name, count] of Object.entries(node.openCounts() ?? {})) note(name, count);
    for (const [name, count] of Object.entries(runtime.openCounts)) note(name, count);
    const handles = world.devices.get(id)?.handles;
    for (const kind of HANDLE_KINDS) {
      // Retained sequences are left out, because they have a separate bound.
      const retained = kind === 'sequences' ? node.retainedSequences() : 0;
      note(`native ${kind}`, (handles?.[kind] ?? 0) - retained);
    }
    note('connections', cluster.network.openSides(id));
    note('files', runtime.openFiles);
    note('sources of packs', cluster.network.packSources.openOf(runtime));
  }
  return held;
}

/** At each later rest a cluster must hold no more than at the first one, however many requests it has answered meanwhile. */
export function checkRests(rests: readonly HeldAtRest[]): Violation[] {
  const [first, ...later] = rests;
  if (first === undefined) return [];
  return later.flatMap((held, rest) =>
    [...held].flatMap(([name, count]) => {
      const before = first.get(name) ?? 0;
      const detail = `${count} ${name} at rest ${rest + 2}, and ${before} at the first one`;
      return count > before ? [{ invariant: 'nothing grows with answers', detail }] : [];
    }),
  );
}
