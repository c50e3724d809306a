import { runtime, transport } from '../../cli/client/process-runtime.js';
import { DaemonProcess } from '../../cli/demo/daemon-process.js';
import { servingAt } from '../../cli/demo/serving.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { NodeIdentity, StatusReply } from '../../shared/wire/messages.js';
import { waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { fetchStatus, identifyPeer } from '../../shared/transport/node-clients.js';

const START_LIMIT_MS = 60_000;
const STATUS_TIMEOUT_MS = 20_000;
const STATUS_POLL_MS = 50;
const KILL_AFTER_MS = 2000;

/** A case is hostile to the daemon of this role. */
export type Target = RoleSetting;

export interface LimitsClusterOptions {
  packPath: string;
  target: Target;
  /** More flags of main. */
  mainFlags: readonly string[];
}

/** A main that runs experts itself, and the target daemon if that is another one. All are separate processes, over loopback. */
export class LimitsCluster {
  private readonly daemons: DaemonProcess[] = [];
  /** Bytes that the target has logged. */
  logBytes = 0;
  readonly name = `limits-${process.pid}`;
  /** Main serves HTTP at this URL. */
  url = '';
  private addresses: Partial<Record<RoleSetting, string>> = {};
  private hasEnded = false;

  private constructor(private readonly options: LimitsClusterOptions) {}

  /** Throws the failure of a daemon that ends, and TIMEOUT; after an error, no daemon runs. */
  static async start(options: LimitsClusterOptions, signal: AbortSignal): Promise<LimitsCluster> {
    const cluster = new LimitsCluster(options);
    try {
      await cluster.begin(signal);
      return cluster;
    } catch (thrown) {
      await cluster.stop();
      throw thrown;
    }
  }

  /** "host:port" of the daemon. */
  addressOf(role: RoleSetting): string {
    const address = this.addresses[role];
    if (address === undefined) throw new OdmoeError('INTERNAL', `no ${role} runs in this case`);
    return address;
  }

  /** The process of the target. */
  get pid(): number {
    const pid = this.daemons.at(-1)?.pid;
    if (pid === undefined) throw new OdmoeError('INTERNAL', 'the daemon has no process');
    return pid;
  }

  /** False: the target has ended. */
  get alive(): boolean {
    return !this.hasEnded;
  }

  status(): Promise<StatusReply> {
    return fetchStatus(transport, this.addressOf('main'), STATUS_TIMEOUT_MS);
  }

  /** An identity that main accepts: its own, with a new boot id and the caller's changes. */
  async identityLikeMain(changes: Partial<NodeIdentity>): Promise<NodeIdentity> {
    const main = await identifyPeer(transport, this.addressOf('main'), STATUS_TIMEOUT_MS);
    return { ...main, bootId: `boot-${runtime.randomId()}`, ...changes };
  }

  async stop(): Promise<void> {
    await Promise.all(this.daemons.map((daemon) => daemon.stop(KILL_AFTER_MS)));
  }

  private async begin(signal: AbortSignal): Promise<void> {
    const { target, mainFlags } = this.options;
    const serving = ['--experts', 'both', '--http', '127.0.0.1:0', '--stop-grace-ms', '0'];
    await this.launch('main', [...serving, ...mainFlags]);
    if (target !== 'main') await this.launch(target, ['--main', this.addressOf('main')]);
    await this.untilReady(signal);
    this.url = servingAt((await this.status()).httpAddress, '', false).url;
  }

  private async launch(role: RoleSetting, flags: readonly string[]): Promise<void> {
    const place = ['--cluster', this.name, '--host', '127.0.0.1', '--port', '0', '--threads', '1'];
    const discovery = flags.includes('--discovery') ? [] : ['--discovery', 'static'];
    const all = [...place, ...discovery, '--model', this.options.packPath, '--log-level', 'warn', ...flags];
    const daemon = new DaemonProcess(role, role, all, (line) => {
      if (role === this.options.target) this.logBytes += Buffer.byteLength(line) + 1;
    });
    this.daemons.push(daemon);
    if (role === this.options.target) void daemon.ended.then(() => (this.hasEnded = true));
    this.addresses[role] = await daemon.listening;
  }

  /** Resolves when main answers users and the target has joined the cluster. */
  private async untilReady(signal: AbortSignal): Promise<void> {
    let late = false;
    const timer = waitForPeer(runtime, START_LIMIT_MS, () => (late = true));
    try {
      while (!(await this.isReady())) {
        if (signal.aborted) throw new OdmoeError('CANCELLED', 'interrupted while the daemons were starting');
        if (late) throw new OdmoeError('TIMEOUT', `the daemons were not ready after ${START_LIMIT_MS / 1000} s`);
        await runtime.sleep(STATUS_POLL_MS);
      }
    } finally {
      timer.cancel();
    }
  }

  private async isReady(): Promise<boolean> {
    const { target } = this.options;
    try {
      const { nodes, placement } = await this.status();
      const placed = placement?.workers ?? [];
      if (target === 'worker') return placed.some(({ id }) => id === target);
      const belongs = nodes.some(({ identity }) => identity.id === target);
      return placed.length > 0 && belongs;
    } catch (thrown) {
      if (['NO_MAIN', 'TIMEOUT'].includes(toOdmoeError(thrown).code)) return false;
      throw thrown;
    }
  }
}
