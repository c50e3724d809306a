import { closeSync, existsSync, fstatSync, openSync, readSync, readdirSync, rmSync, writeSync } from 'node:fs';
import { basename, join } from 'node:path';
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { FETCH_LOCK_FILE } from '../../packs/format/pack-layout.js';
import { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { SimulatedCluster } from '../cluster/simulated-cluster.js';
import type { DrainFaults } from './drain-faults.js';
import { type Falsify, falseNumbers, falseValues } from './false-values.js';
import { RoguePeer } from './rogue-peer.js';
import { type Fault, isTrustFault, type Scenario, type TrustFault } from './scenario.js';
import type { TrustFaults } from './trust-faults.js';
import type { ScenarioWorld } from './scenario-world.js';

/** Id of the second main, which a correct cluster does not have. */
export const SECOND_MAIN = 'main2';
/** A slow link or device takes this many times as long. */
const SLOWNESS = 40;
/** Size of a wall clock's jump, in either direction. */
const JUMP_MS = 3_600_000;

/** Runs a scenario's faults on the virtual clock, and repairs everything when they are over. */
export class FaultInjector {
  private readonly undo = new Map<Fault, () => void>();
  /** Total jump of each machine's wall clock: it survives a restart. */
  private readonly jumpsMs = new Map<string, number>();

  constructor(
    private readonly cluster: SimulatedCluster,
    private readonly world: ScenarioWorld,
    private readonly scenario: Scenario,
    /** null: the cluster has no authority. */
    private readonly trust: TrustFaults | null,
    private readonly drains: DrainFaults,
  ) {}

  schedule(): void {
    const { clock, history } = this.cluster;
    for (const fault of this.scenario.faults) {
      const name = `fault ${fault.kind} ${fault.node} ${fault.peer}`;
      clock.schedule(fault.atMs, () => {
        history.add(`${name} begins`);
        this.undo.set(fault, this.begin(fault));
      });
      clock.schedule(fault.atMs + fault.forMs, () => {
        history.add(`${name} ends`);
        this.undo.get(fault)?.();
        this.undo.delete(fault);
      });
    }
    clock.schedule(this.scenario.calmMs, () => {
      this.calm();
    });
  }

  /** Starts all nodes again that were killed, have left or have given up. */
  private calm(): void {
    this.cluster.history.add('calm');
    for (const node of this.cluster.nodes.values()) {
      if (node.id === SECOND_MAIN) continue;
      if (node.isAlive) node.resume();
      else this.start(node.id);
    }
    this.drains.undoAll();
  }

  /** Begins a fault. Returns a function that ends it. */
  private begin(fault: Fault): () => void {
    const { kind } = fault;
    if (isTrustFault(kind)) return this.beginTrustFault({ ...fault, kind });
    switch (kind) {
      case 'kill':
        this.kill(fault.node);
        return () => undefined;
      case 'restart':
        this.kill(fault.node);
        return () => this.start(fault.node);
      case 'leave':
        return this.leave(fault.node);
      case 'join':
        // The node has not been started before (runScenario).
        this.start(fault.node);
        return () => undefined;
      case 'stopAndContinue':
        this.cluster.node(fault.node).pause();
        return () => this.cluster.node(fault.node).resume();
      case 'cutOneWay':
      case 'cutBothWays':
      case 'slowLink':
      case 'stalledLink':
        return this.beginLinkFault(fault);
      case 'failingReads':
      case 'slowReads':
      case 'flippedBits':
        return this.beginReadFault(fault);
      case 'shortPieces':
      case 'wrongPieces':
      case 'falseHoldings':
        return this.givePackPiecesFalsely(fault);
      case 'falseValues':
        return this.giveFalseValues(fault, falseValues(fault.seed));
      case 'falseNumbers':
        return this.giveFalseValues(
          fault,
          falseNumbers(fault.seed, () => this.world.lies.lied(fault.node, this.cluster.clock.nowMs)),
        );
      case 'slowDevice':
        return this.slowDown(fault.node);
      case 'deviceLost':
        return this.loseDevice(fault.node);
      case 'memoryRefused':
        return this.refuseMemory(fault);
      case 'nonsense':
        return new RoguePeer(this.cluster, fault).begin();
      case 'secondMain':
        return this.startSecondMain();
      case 'staleMessages':
        this.cluster.network.replay(fault.node, new SeededRandom(fault.seed));
        return () => undefined;
      case 'drain':
        return this.drains.begin(fault, (id) => this.restart(id));
      case 'changeAddress':
        return this.changeAddress(fault.node);
      case 'wallClockJump':
        this.jump(fault.node, new SeededRandom(fault.seed).int(2 * JUMP_MS) - JUMP_MS);
        return () => undefined;
    }
  }

  private beginTrustFault(fault: TrustFault): () => void {
    assertInvariant(this.trust !== null, 'Only a cluster with an authority has events of trust.');
    const start = (id: string): void => this.start(id);
    return this.trust.begin(fault, start, (id) => this.restart(id));
  }

  private beginLinkFault({ kind, node, peer, seed }: Fault): () => void {
    const { network } = this.cluster;
    const changes = kind === 'slowLink' ? { slowness: SLOWNESS } : { cut: true };
    const oneWay = kind === 'cutOneWay' || (kind === 'stalledLink' && seed % 2 === 0);
    const directions = oneWay ? [[node, peer] as const] : [[node, peer] as const, [peer, node] as const];
    for (const [from, to] of directions) network.setLink(from, to, changes);
    return () => {
      for (const [from, to] of directions) network.setLink(from, to, { cut: false, slowness: 1 });
    };
  }

  private beginReadFault({ kind, node, seed }: Fault): () => void {
    if (kind === 'flippedBits') return this.flipBits(node, new SeededRandom(seed));
    const faults = this.faultsOf(node);
    if (kind === 'failingReads') faults.readsFail = true;
    else faults.readSlowness = SLOWNESS;
    return () => {
      faults.readsFail = false;
      faults.readSlowness = 1;
    };
  }

  private givePackPiecesFalsely({ kind, node }: Fault): () => void {
    const faults = this.world.packPieceFaults.get(node);
    if (faults === undefined) throw new RangeError(`no pack pieces of ${node}`);
    if (kind === 'shortPieces') faults.areShort = true;
    else if (kind === 'wrongPieces') faults.areWrong = true;
    else faults.claimsAll = true;
    return () => {
      faults.areShort = false;
      faults.areWrong = false;
      faults.claimsAll = false;
    };
  }

  private slowDown(node: string): () => void {
    const faults = this.faultsOf(node);
    faults.slowness = SLOWNESS;
    return () => {
      faults.slowness = 1;
    };
  }

  private giveFalseValues({ node }: Fault, falsify: Falsify): () => void {
    const faults = this.faultsOf(node);
    faults.falsify = falsify;
    return () => {
      faults.falsify = null;
    };
  }

  private loseDevice(node: string): () => void {
    const faults = this.faultsOf(node);
    faults.lost = true;
    return () => {
      faults.lost = false;
      if (!this.cluster.node(node).isAlive) this.start(node);
    };
  }

  private refuseMemory({ node, seed }: Fault): () => void {
    const faults = this.faultsOf(node);
    faults.refusals = 1 + (seed % 4);
    return () => {
      faults.refusals = 0;
    };
  }

  /**
   * Flips bits of the node's separate copy of the pack while nobody reads it. They are restored when the fault is over. Bits of a fetched pack
   * stay flipped, because the node may have fetched the experts again.
   */
  private flipBits(node: string, random: SeededRandom): () => void {
    const fetches = this.world.fetches(node);
    const flip = (seeded: SeededRandom): void => {
      const files = expertFiles(fetches ? this.world.dataDirectory(node) : this.world.packDirectory(node));
      for (const path of files) for (let place = 0; place < 4; place++) flipByte(path, seeded.fraction());
    };
    const whenUnread = (): void => this.cluster.clock.scheduleAtRest(() => flip(random.fork('places')));
    whenUnread();
    return fetches ? () => undefined : whenUnread;
  }

  private startSecondMain(): () => void {
    const main = this.scenario.nodes[0];
    if (main === undefined) return () => undefined;
    const second = { ...main, settings: { ...main.settings, id: SECOND_MAIN } };
    const known = this.cluster.nodes.get(SECOND_MAIN);
    const node = known ?? this.cluster.add(this.world.settingsOf(second), this.world.of(second));
    if (!node.isAlive) node.start();
    return () => node.kill();
  }

  private faultsOf(node: string): NonNullable<ReturnType<ScenarioWorld['devices']['get']>> {
    const faults = this.world.devices.get(node);
    if (faults === undefined) throw new RangeError(`no devices of ${node}`);
    return faults;
  }

  /** Stops the node in order: main ends its answers under way first, which may take longer than the fault. */
  private leave(id: string): () => void {
    const left = this.cluster.node(id).stop();
    return () => {
      void left.then(() => this.start(id));
    };
  }

  /** The host's lease has run out: it gets a new address, and the old one again when the fault is over. */
  private changeAddress(id: string): () => void {
    const { network } = this.cluster;
    network.move(id, `${id}-moved`);
    return () => network.move(id, id);
  }

  private jump(id: string, byMs: number): void {
    this.cluster.node(id).runtime.wallOffsetMs += byMs;
    this.jumpsMs.set(id, (this.jumpsMs.get(id) ?? 0) + byMs);
  }

  private restart(id: string): void {
    this.kill(id);
    this.start(id);
  }

  private kill(id: string): void {
    this.cluster.node(id).kill();
  }

  /** Starts the node after removing its locks: the real system removes the locks of a dead process, but here all nodes are in one process. */
  private start(id: string): void {
    const node = this.cluster.node(id);
    if (node.isAlive) return;
    removeLocks(this.world.dataDirectory(id));
    const skewMs = this.scenario.nodes.find(({ settings }) => settings.id === id)?.wallSkewMs ?? 0;
    node.start(skewMs + (this.jumpsMs.get(id) ?? 0));
  }
}

/** Files of experts in the directory and its subdirectories, in a fixed order. */
function expertFiles(directory: string): string[] {
  if (!existsSync(directory)) return [];
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .filter((name) => /^(experts|slices)-/.test(basename(name)))
    .sort()
    .map((name) => join(directory, name));
}

function removeLocks(directory: string): void {
  if (!existsSync(directory)) return;
  for (const name of readdirSync(directory, { recursive: true, encoding: 'utf8' })) {
    if (basename(name).startsWith(FETCH_LOCK_FILE)) rmSync(join(directory, name), { force: true });
  }
}

/** `at`: place in the file, from 0 to 1. */
function flipByte(path: string, at: number): void {
  const file = openSync(path, 'r+');
  try {
    const { size } = fstatSync(file);
    if (size === 0) return;
    const place = Math.floor(at * size);
    const byte = Buffer.alloc(1);
    readSync(file, byte, 0, 1, place);
    byte[0] = (byte[0] ?? 0) ^ 0x10;
    writeSync(file, byte, 0, 1, place);
  } finally {
    closeSync(file);
  }
}
