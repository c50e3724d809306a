/** A box of a LAN: a network namespace with a host name and a home directory of its own. Its daemon is a service of its user. */
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { type LanHost, onHost } from '../../../../bench/peers/emulated-lan.js';
import { packageRoot } from '../../../../shared/base/files/package-root.js';
import type { RoleSetting } from '../../../../shared/settings/setting-choices.js';

const COMMAND_LIMIT_MS = 60_000;
/** Names the host, and becomes the command. */
const WITH_HOST_NAME = 'echo "$0" > /proc/sys/kernel/hostname && exec "$@"';

export class Box {
  /** All that the daemon of this box has written, over all its starts. */
  journal = '';
  readonly home: string;
  private execStart: readonly string[] = [];
  private daemon: ChildProcess | null = null;

  constructor(
    readonly name: string,
    private readonly host: LanHost,
    directory: string,
  ) {
    this.home = join(directory, name);
    mkdirSync(this.home);
  }

  /** Starts a program on this box. */
  spawn(command: readonly string[], variables: NodeJS.ProcessEnv = {}): ChildProcess {
    const named = ['unshare', '--uts', 'sh', '-c', WITH_HOST_NAME, this.name, ...command];
    const [file, ...args] = onHost(this.host, named);
    const own = Object.entries(process.env).filter(([key]) => !/^(XDG|ODMOE)_/.test(key));
    const env = { ...Object.fromEntries(own), HOME: this.home, ...variables };
    return spawn(file, args, { cwd: packageRoot(), stdio: ['ignore', 'pipe', 'pipe'], env });
  }

  /** `odmoe` with these words, to its end; what it wrote on standard output. Rejects with what it said where it fails. */
  async odmoe(words: readonly string[]): Promise<string> {
    const child = this.spawn(odmoeCommand(words));
    const limit = setTimeout(() => child.kill('SIGKILL'), COMMAND_LIMIT_MS);
    const [output, problems] = [collected(child.stdout), collected(child.stderr)];
    const [status] = (await once(child, 'close')) as [number | null];
    clearTimeout(limit);
    if (status !== 0) throw new Error(`${this.name}$ odmoe ${words.join(' ')}: status ${status}: ${problems()}`);
    return output();
  }

  /** Makes the daemon a service, as far as that goes without systemd, and returns the command of its unit. */
  async installService(role: RoleSetting, flags: readonly string[]): Promise<string> {
    const daemonFlags = flags.map((word) => word.replace(/^~/, this.home));
    const unit = await this.odmoe(['service', 'install', '--user', '--dry-run', role, '--', ...daemonFlags]);
    const command = /^ExecStart=(.*)$/m.exec(unit)?.[1];
    if (command === undefined) throw new Error(`the unit of ${this.name} has no command:\n${unit}`);
    // Words with spaces would be quoted.
    if (command.includes('"')) throw new Error(`the unit of ${this.name} needs systemd to be read: ${command}`);
    this.execStart = command.split(' ');
    return command;
  }

  /** Starts the daemon by the command of its unit. */
  startService(variables: NodeJS.ProcessEnv = {}): void {
    const child = this.spawn(this.execStart, variables);
    this.daemon = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (data: Buffer) => (this.journal += data.toString()));
    }
  }

  /** Stops the daemon as systemd does, and resolves with its exit status when it has ended. */
  async stopService(): Promise<number | null> {
    const child = this.daemon;
    if (child === null || child.exitCode !== null) throw new Error(`no daemon runs on ${this.name}`);
    const ended = once(child, 'exit');
    child.kill('SIGTERM');
    await ended;
    return child.exitCode;
  }

  unplug(): void {
    this.setLink('down');
  }

  plug(): void {
    this.setLink('up');
  }

  private setLink(state: 'up' | 'down'): void {
    execFileSync('ip', ['-n', this.host.namespace, 'link', 'set', 'eth0', state]);
  }

  /** Ends all processes of this box without a word to anybody. */
  async cutPower(): Promise<void> {
    const { daemon } = this;
    const ended = daemon === null || hasEnded(daemon) ? null : once(daemon, 'exit');
    const pids = execFileSync('ip', ['netns', 'pids', this.host.namespace], { encoding: 'utf8' });
    for (const pid of pids.split('\n').filter((line) => line !== '')) killIfThere(Number(pid));
    await ended;
  }
}

export function odmoeCommand(words: readonly string[]): string[] {
  return [process.execPath, join(packageRoot(), 'bin', 'odmoe'), ...words];
}

export function hasEnded({ exitCode, signalCode }: ChildProcess): boolean {
  return exitCode !== null || signalCode !== null;
}

/** Collects what comes; the function returns what has come. */
export function collected(stream: ChildProcess['stdout']): () => string {
  let text = '';
  stream?.setEncoding('utf8').on('data', (part: string) => (text += part));
  return () => text;
}

function killIfThere(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (thrown) {
    // It has just ended.
    if ((thrown as NodeJS.ErrnoException).code !== 'ESRCH') throw thrown;
  }
}
