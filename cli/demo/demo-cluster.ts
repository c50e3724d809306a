import type { ShadowPrecision } from '../../shared/settings/setting-choices.js';
import type { HttpAddress } from '../../shared/settings/http-address.js';
import { defaultClusterConfig } from '../../shared/settings/load-cluster-config.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { formatAddress } from '../../shared/wire/addresses.js';
import type { StatusReply } from '../../shared/wire/messages.js';
import { daemonName, DaemonProcess, STOP_GRACE_MS } from './daemon-process.js';
import { runtime, transport } from '../client/process-runtime.js';
import { timeForPeers, waitForPeer } from '../../shared/base/runtime/peer-wait.js';
import { onAbort } from '../../shared/base/runtime/living.js';
import { fetchStatus } from '../../shared/transport/node-clients.js';

export interface DemoClusterOptions {
  /** Directory of the pack. */
  packPath: string;
  /** Port at which main listens; missing: any free one. */
  mainPort?: number;
  workers: number;
  shadow: 'none' | ShadowPrecision;
  groupSize: number | 'auto';
  /** Alignment periods in iterations; 0: never. */
  alignTokenPeriod: number;
  alignKeyValuePeriod: number;
  /** Main's address for HTTP clients; null: the default, or a free port if that is taken; off or missing: none. */
  http?: HttpAddress | 'off' | null;
  /** Gets each line that main logs (warnings and errors) until the cluster stops. */
  onMainLine?: (line: string) => void;
  /** Time in which all daemons must find each other. */
  startTimeoutMs: number;
  /** Its name; missing: one of its own for this process. */
  cluster?: string;
  /** The address at which main is asked; missing: the one on which it listens. */
  askAt?: string;
  /** More flags for the daemons of a role; they override the other options. */
  flags?: Readonly<Partial<Record<RoleSetting, readonly string[]>>>;
}

const STATUS_POLL_MS = 50;
const STATUS_TIMEOUT_MS = 2_000;

/** Time after a broken connection in which the end of the process may be noticed. */
const EXIT_NOTICE_MS = 500;

/** Main, shadow and workers as processes on this machine, over loopback. They end when this process ends. */
export class DemoCluster {
  private readonly daemons: DaemonProcess[] = [];
  private address: string | null = null;
  private stopping = false;

  constructor(private readonly options: DemoClusterOptions) {}

  /** "host:port" of main, or `askAt`. */
  get mainAddress(): string {
    if (this.address === null) throw new OdmoeError('INTERNAL', 'the demo cluster has not been started');
    return this.address;
  }

  /**
   * Starts all daemons and waits until main has connected to all. Throws the failure of a daemon that ends, with its output; TIMEOUT, naming the
   * missing daemons, when time runs out; CANCELLED when the signal aborts. The caller must call stop(), also after an error.
   */
  async start(signal: AbortSignal): Promise<void> {
    const timeout = new AbortController();
    const timer = waitForPeer(runtime, this.options.startTimeoutMs, () => timeout.abort());
    try {
      await this.startWithin(timeout.signal, signal);
    } finally {
      timer.cancel();
    }
  }

  private async startWithin(timeout: AbortSignal, signal: AbortSignal): Promise<void> {
    const main = this.launch('main', 'main', this.mainFlags());
    const listening = await this.orEnd(main.listening, signal, timeout, () => 'main is still starting');
    this.address = this.options.askAt ?? listening;
    const join = ['--main', listening];
    if (this.options.shadow !== 'none') {
      this.launch('shadow', 'shadow', [...join, '--precision', this.options.shadow]);
    }
    for (let worker = 1; worker <= this.options.workers; worker += 1) this.launch('worker', `worker-${worker}`, join);
    let missing = 'main does not answer';
    await this.orEnd(
      this.allJoined(timeout, (what) => {
        missing = what;
      }),
      signal,
      timeout,
      () => missing,
    );
  }

  /** The promise's outcome. If main's process ends first, throws its failure, with its output. Other daemons may be lost. */
  async whileMainRuns<T>(promise: Promise<T>): Promise<T> {
    const main = this.daemons.find(({ role }) => role === 'main');
    if (main === undefined) throw new OdmoeError('INTERNAL', 'the demo cluster has not been started');
    const mainFailure = main.ended.then((error) => Promise.reject(error));
    mainFailure.catch(() => undefined);
    try {
      return await Promise.race([promise, mainFailure]);
    } catch (error) {
      // A broken connection is often noticed before the process's end, but the end says more.
      const connectionLost = error instanceof OdmoeError && error.code === 'NO_MAIN';
      if (connectionLost) await Promise.race([mainFailure, timeForPeers(runtime, EXIT_NOTICE_MS)]);
      throw error;
    }
  }

  /** Calls `onLost` with the failure of each worker and shadow that ends before the cluster is stopped. */
  watchPeers(onLost: (failure: OdmoeError) => void): void {
    for (const daemon of this.daemons) {
      if (daemon.role === 'main') continue;
      void daemon.ended.then((failure) => {
        if (!this.stopping) onLost(failure);
      });
    }
  }

  /** The status of main and its peers, from main. */
  status(): Promise<StatusReply> {
    return fetchStatus(transport, this.mainAddress, STATUS_TIMEOUT_MS);
  }

  /** Ends every daemon; resolves when all have ended. The others work for main until it has ended the running answers. */
  async stop(): Promise<void> {
    this.stopping = true;
    const ofMain = this.daemons.filter(({ role }) => role === 'main');
    const others = this.daemons.filter(({ role }) => role !== 'main');
    const graceMs = defaultClusterConfig().main.stop_grace_ms + STOP_GRACE_MS;
    await Promise.all(ofMain.map((daemon) => daemon.stop(graceMs)));
    await Promise.all(others.map((daemon) => daemon.stop()));
  }

  private launch(role: RoleSetting, id: string, flags: readonly string[]): DaemonProcess {
    const allFlags = [...this.sharedFlags(), ...flags, ...(this.options.flags?.[role] ?? [])];
    const daemon = new DaemonProcess(role, id, allFlags, (line) => {
      if (role === 'main' && !this.stopping) this.options.onMainLine?.(line);
    });
    this.daemons.push(daemon);
    return daemon;
  }

  private sharedFlags(): string[] {
    const { cluster = `demo-${process.pid}` } = this.options;
    const place = ['--cluster', cluster, '--discovery', 'static', '--host', '127.0.0.1', '--port', '0'];
    return [...place, '--model', this.options.packPath, '--threads', '1', '--log-level', 'warn'];
  }

  private mainFlags(): string[] {
    const { alignTokenPeriod, alignKeyValuePeriod, groupSize, http = 'off', mainPort = 0 } = this.options;
    const align = ['--align-token', String(alignTokenPeriod), '--align-kv', String(alignKeyValuePeriod)];
    return [...align, '--port', String(mainPort), '--group-size', String(groupSize), ...httpFlags(http)];
  }

  /** The promise's outcome, unless a daemon ends, the signal aborts or time runs out first. */
  private async orEnd<T>(
    promise: Promise<T>,
    signal: AbortSignal,
    timeout: AbortSignal,
    missing: () => string,
  ): Promise<T> {
    const listening: (() => void)[] = [];
    const failed = new Promise<never>((_, reject) => {
      for (const daemon of this.daemons) void daemon.ended.then(reject);
      const cancelled = () => reject(new OdmoeError('CANCELLED', 'interrupted while the daemons were starting'));
      listening.push(onAbort(signal, cancelled));
      if (signal.aborted) cancelled();
      const late = () => reject(this.timeoutError(missing()));
      listening.push(onAbort(timeout, late));
    });
    try {
      return await Promise.race([promise, failed]);
    } finally {
      for (const leave of listening) leave();
    }
  }

  private async allJoined(timeout: AbortSignal, onMissing: (missing: string) => void): Promise<void> {
    while (!this.stopping && !timeout.aborted) {
      try {
        const missing = missingNodes(await this.status(), this.daemons);
        if (missing.length === 0) return;
        onMissing(missing.join('; '));
      } catch (error) {
        onMissing(`main does not answer: ${toOdmoeError(error).message}`);
      }
      await runtime.sleep(STATUS_POLL_MS);
    }
  }

  private timeoutError(missing: string): OdmoeError {
    const seconds = Math.round(this.options.startTimeoutMs / 1000);
    return new OdmoeError('TIMEOUT', `the demo's daemons were not ready after ${seconds} s: ${missing}`);
  }
}

/** A given address is never replaced by main, even if it is taken. So the default address is not passed as a flag. */
function httpFlags(http: HttpAddress | 'off' | null): string[] {
  if (http === null) return [];
  return ['--http', http === 'off' ? http : formatAddress(http.host, http.port)];
}

/** The daemons that main does not work with yet, with the reason if main knows it; empty: all have joined. */
export function missingNodes(status: StatusReply, daemons: readonly { role: RoleSetting; id: string }[]): string[] {
  const known = new Set(status.nodes.map(({ identity }) => identity.id));
  const placed = new Set(status.placement?.workers.map(({ id }) => id) ?? []);
  return daemons
    .filter(({ role, id }) => !(known.has(id) && (role !== 'worker' || placed.has(id))))
    .map((daemon) => {
      const problem = status.problems.find((candidate) => candidate.id === daemon.id);
      return `${daemonName(daemon)} has not joined${problem === undefined ? '' : ` (${problem.message})`}`;
    });
}
