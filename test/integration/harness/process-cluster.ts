import { randomInt } from 'node:crypto';
import type { Context } from 'mocha';
import type { GenerateRequest, StatusReply } from '../../../shared/wire/messages.js';
import { collect, type CollectedAnswer } from './answers.js';
import { TestDaemon } from './test-daemon.js';
import { TestLog } from './test-log.js';
import { packOf, type TestModel } from './test-models.js';
import { waitUntil } from './wait-until.js';
import { fetchStatus, generate } from '../../wall.js';

const STATUS_TIMEOUT_MS = 20_000;

/** Flags and environment that set the device of each daemon, by its id. */
export interface ProcessDevices {
  flags: (id: string) => readonly string[];
  environment: (id: string) => Readonly<Record<string, string>>;
}

const ON_PROCESSORS: ProcessDevices = { flags: () => ['--device', 'cpu'], environment: () => ({}) };

export interface FreshWorker {
  flags?: readonly string[];
  /** An address that replaces main's own, such as the address of a slow link. */
  mainAddress?: string;
  environment?: Readonly<Record<string, string>>;
}

/** A cluster of real processes on this machine. Tests kill and stop them. */
export class ProcessCluster {
  private readonly daemons = new Map<string, TestDaemon>();

  private constructor(
    private readonly commonFlags: readonly string[],
    /** Flags of daemons that have a model. */
    private readonly modelFlags: readonly string[],
    readonly main: TestDaemon,
    private readonly log: TestLog,
    private readonly on: ProcessDevices,
  ) {
    this.daemons.set(main.name, main);
  }

  /** `mainFlags`: flags for main only. With `--experts local` or `both` there is one worker more, main's own worker. */
  static async start(
    model: TestModel,
    workers: number,
    shadow: boolean,
    mainFlags: readonly string[] = [],
    on: ProcessDevices = ON_PROCESSORS,
  ): Promise<ProcessCluster> {
    const log = new TestLog();
    const modelFlags = ['--model', await packOf(model)];
    const flags = [
      '--cluster',
      `faults-${process.pid}-${randomInt(1_000_000)}`,
      '--discovery',
      'static',
      '--host',
      '127.0.0.1',
      '--port',
      '0',
      '--threads',
      '1',
      '--log-level',
      'info',
    ];
    const ofMain = [...modelFlags, ...flags, ...on.flags('main'), ...mainFlags];
    const main = await TestDaemon.start('main', ofMain, 'main', log, on.environment('main')).catch(
      (thrown: unknown) => {
        log.print();
        throw thrown;
      },
    );
    const cluster = new ProcessCluster(flags, modelFlags, main, log, on);
    try {
      await Promise.all(Array.from({ length: workers }, (_, index) => cluster.startWorker(`worker-${index}`)));
      if (shadow) await cluster.startShadow('shadow');
      const own = mainFlags.includes('--experts') ? 1 : 0;
      await cluster.waitForRoster(workers + own, shadow ? 1 : 0);
      return cluster;
    } catch (thrown) {
      log.print();
      await cluster.end();
      throw thrown;
    }
  }

  startWorker(id: string): Promise<TestDaemon> {
    return this.startPeer('worker', id);
  }

  startShadow(id: string): Promise<TestDaemon> {
    return this.startPeer('shadow', id);
  }

  /** Starts a worker without a pack. It gets main's address and the flags and environment of `fresh`. */
  async startFreshWorker(id: string, fresh: FreshWorker): Promise<TestDaemon> {
    const join = ['--main', fresh.mainAddress ?? this.main.address];
    const flags = [...this.commonFlags, ...this.on.flags(id), ...join, ...(fresh.flags ?? [])];
    const daemon = await TestDaemon.start('worker', flags, id, this.log, fresh.environment);
    this.daemons.set(id, daemon);
    return daemon;
  }

  async stop(id: string): Promise<void> {
    await this.daemon(id).end();
    this.daemons.delete(id);
  }

  /** Lines that contain the text. */
  logged(text: string): string[] {
    return this.log.matching(text);
  }

  daemon(id: string): TestDaemon {
    const daemon = this.daemons.get(id);
    if (daemon === undefined) throw new Error(`no daemon ${id} in this cluster`);
    return daemon;
  }

  status(): Promise<StatusReply> {
    return fetchStatus(this.main.address, STATUS_TIMEOUT_MS);
  }

  async waitForRoster(workers: number, shadows: number): Promise<void> {
    await waitUntil(`${workers} workers and ${shadows} shadows are connected`, async () => {
      const { nodes, placement } = await this.status();
      const connected = nodes.filter(({ identity }) => identity.role === 'ROLE_SHADOW').length;
      return (placement?.workers.length ?? 0) === workers && connected === shadows;
    });
  }

  ask(
    request: GenerateRequest,
    onToken?: (count: number) => void | Promise<void>,
    signal?: AbortSignal,
  ): Promise<CollectedAnswer> {
    return collect(generate(this.main.address, request, signal), onToken);
  }

  printLog(): void {
    this.log.print();
  }

  async end(): Promise<void> {
    await Promise.all([...this.daemons.values()].map((daemon) => daemon.end()));
    this.daemons.clear();
  }

  private async startPeer(role: 'worker' | 'shadow', id: string): Promise<TestDaemon> {
    const flags = [...this.modelFlags, ...this.commonFlags, ...this.on.flags(id), '--main', this.main.address];
    const daemon = await TestDaemon.start(role, flags, id, this.log, this.on.environment(id));
    this.daemons.set(id, daemon);
    return daemon;
  }
}

/** Ends the cluster; call this in afterEach. The log is printed if the test has failed. */
export async function endCluster(context: Context, cluster: ProcessCluster | null): Promise<void> {
  if (context.currentTest?.state === 'failed') cluster?.printLog();
  await cluster?.end();
}
