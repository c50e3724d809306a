/** Makes the service of a daemon from its flags and from what is on this machine. */
import { constants, existsSync, lstatSync, readdirSync, readFileSync, type Stats, statSync } from 'node:fs';
import { dirname, isAbsolute, join, resolve } from 'node:path';
import { parseDaemonFlags } from '../../engine/daemon/parse-daemon-flags.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { rowsWithFlag } from '../../shared/settings/settings-table.js';
import { thisHost } from '../../shared/settings/resolve-node-settings.js';
import { SERVICE_USER, type ServiceScope, type ServiceUnit } from './unit-text.js';

/** The service that a user asks for. */
export interface WantedService {
  readonly role: RoleSetting;
  readonly scope: ServiceScope;
  /** The daemon's flags. */
  readonly flags: readonly string[];
  readonly tokenPath: string | null;
  /** Directory in which the service keeps its state. */
  readonly stateHome: string;
}

/** The facts of this machine that the unit depends on. */
export interface MachineFacts {
  /** "/", or the directory of another system, which will run the service. */
  readonly root: string;
  /** Lines of /etc/group. */
  readonly groups: readonly string[];
  /** Those of the programs that are here. */
  readonly programs: ReadonlySet<string>;
  /** Null: nothing is at the path. */
  readonly statusOf: (path: string) => Pick<Stats, 'mode' | 'isDirectory'> | null;
  readonly workingDirectory: string;
  /** The Node and the odmoe that run now. */
  readonly node: string;
  readonly program: string;
  /** Null: it is not known. */
  readonly systemdVersion: number | null;
}

export interface PlannedService {
  readonly unit: ServiceUnit;
  readonly settings: NodeSettings;
}

export const NVIDIA_STARTER = '/usr/bin/nvidia-modprobe';
/** Members may open GPUs: those of NVIDIA's Jetsons, and all others. */
const DEVICE_GROUPS = ['video', 'render'];
/** Directories of which each service of the system has its own. */
const TEMPORARY = /^\/(?:var\/)?tmp(?:\/|$)/;
const NODE_PATHS = ['/usr/bin/node', '/usr/local/bin/node'];
const PROGRAM_PATHS = ['/usr/lib', '/usr/local/lib'].map((library) => `${library}/node_modules/odmoe/bin/odmoe`);
const HOMES = /^\/(?:home|root|run\/user)(?:\/|$)/;
/** After main's grace for running answers, and the 5 s in which a daemon closes what it has. */
const STOP_RESERVE_MS = 10_000;
const GIBIBYTE = 1024 ** 3;

/** Before it, systemd warns of RestartSteps at each start. */
const RESTART_STEPS_VERSION = 254;
const SYSTEMD_LIBRARY = /^libsystemd-shared-(\d+)/;
const LIBRARY_DIRECTORIES = [
  'usr/lib',
  'usr/lib64',
  'lib',
  ...['x86_64', 'aarch64'].map((name) => `usr/lib/${name}-linux-gnu`),
];

/** The version of the systemd that is installed below the root, by the name of its library; null: it is not found. */
export function systemdVersionBelow(root: string): number | null {
  const names = LIBRARY_DIRECTORIES.flatMap((directory) => namesIn(join(root, directory, 'systemd')));
  const versions = names.flatMap((name) => SYSTEMD_LIBRARY.exec(name)?.[1] ?? []).map(Number);
  return versions.length === 0 ? null : Math.max(...versions);
}

function namesIn(directory: string): string[] {
  return statSync(directory, { throwIfNoEntry: false })?.isDirectory() === true ? readdirSync(directory) : [];
}

/** `root`: of the system that will run the service. */
export function factsOfMachine(root: string): MachineFacts {
  // An absolute link of an image leads to a file of this machine.
  const look = root === '/' ? statSync : lstatSync;
  const statusOf = (path: string): Stats | null => look(join(root, path), { throwIfNoEntry: false }) ?? null;
  const groupPath = join(root, 'etc/group');
  return {
    root,
    groups: existsSync(groupPath) ? readFileSync(groupPath, 'utf8').split('\n') : [],
    programs: new Set([NVIDIA_STARTER].filter((path) => statusOf(path) !== null)),
    statusOf,
    workingDirectory: process.cwd(),
    node: process.execPath,
    program: join(packageRoot(), 'bin', 'odmoe'),
    systemdVersion: systemdVersionBelow(root),
  };
}

/**
 * The unit of the service, and the settings with which the daemon will run.
 * @throws USAGE, CONFIG_INVALID as the daemon itself would, or where its user could not read what it needs
 */
export function planService(wanted: WantedService, facts: MachineFacts): PlannedService {
  const { role, scope, tokenPath } = wanted;
  const flags = withAbsolutePaths(role, wanted.flags, facts.workingDirectory);
  const request = daemonRequest(role, flags, wanted.stateHome, facts.root);
  if (request.exitWithParent) {
    throw new OdmoeError('USAGE', 'a service has no parent to end with: leave out --exit-with-parent');
  }
  const { settings } = request;
  if (settings.joining.token !== null || settings.joining.rejoin) {
    throw new OdmoeError(
      'USAGE',
      'every user can read a unit, and it is used at each start: give --join and --rejoin to odmoe service install itself, before the --',
    );
  }
  const node = installedPath('Node', [facts.node, ...NODE_PATHS], facts);
  const program = installedPath('odmoe', [facts.program, ...PROGRAM_PATHS], facts);
  const needed = [node, program, ...pathsIn(role, flags)];
  if (scope === 'system') for (const path of needed) requireUsable(path, facts);
  const fetchesInto = role === 'worker' ? settings.modelPath : null;
  if (fetchesInto !== null) requireParent(fetchesInto, facts);
  return {
    settings,
    unit: {
      role,
      scope,
      node,
      program,
      flags,
      readsHomes: needed.some((path) => HOMES.test(path)),
      fetchesInto,
      deviceGroups: DEVICE_GROUPS.filter((name) => facts.groups.some((line) => line.startsWith(`${name}:`))),
      gpuStarter: facts.programs.has(NVIDIA_STARTER) ? NVIDIA_STARTER : null,
      tokenPath,
      memoryBytes: memoryBytes(settings),
      hasRestartSteps: (facts.systemdVersion ?? 0) >= RESTART_STEPS_VERSION,
      stopMs: settings.main.stopGraceMs + STOP_RESERVE_MS,
    },
  };
}

/** The settings that these flags give the daemon. `root`: of the system that will run it. Throws USAGE, CONFIG_INVALID as the daemon itself would. */
export function daemonRequest(
  role: RoleSetting,
  flags: readonly string[],
  stateHome: string,
  root: string,
): { readonly settings: NodeSettings; readonly exitWithParent: boolean } {
  const request = parseDaemonFlags(role, flags, thisHost(stateHome, false), root);
  if (request.kind === 'help') throw new OdmoeError('USAGE', `odmoe ${role} --help shows the flags of a ${role}`);
  return request;
}

/** The bound of a daemon's memory: its budgets, and a GiB for Node and what it reads. Null: the settings bound nothing. Pure. */
export function memoryBytes({
  role,
  device,
  worker,
}: Pick<NodeSettings, 'role' | 'worker'> & { readonly device: Pick<NodeSettings['device'], 'memoryBudgetBytes'> }):
  | number
  | null {
  const hostMemory = role === 'worker' ? worker.hostMemory : 0;
  if (device.memoryBudgetBytes === 0 || hostMemory === 'auto') return null;
  return device.memoryBudgetBytes + hostMemory + GIBIBYTE;
}

/** The first path at which the system that will run the service has the program. Throws CONFIG_INVALID. */
function installedPath(name: string, paths: readonly [string, ...string[]], { root, statusOf }: MachineFacts): string {
  // This very process runs by it.
  if (root === '/') return paths[0];
  const found = paths.find((path) => statusOf(path) !== null);
  if (found !== undefined) return found;
  throw new OdmoeError(
    'CONFIG_INVALID',
    `${root} has no ${name} at ${[...new Set(paths)].join(', ')}: install it there first: Node, and then odmoe by chroot ${root} npm install --global and the files of a release (docs/packages.md, "Installing")`,
  );
}

/** A worker makes the last directory of its path alone. Throws CONFIG_INVALID. */
function requireParent(path: string, { statusOf }: MachineFacts): void {
  if (statusOf(path) !== null || statusOf(dirname(path)) !== null) return;
  throw new OdmoeError('CONFIG_INVALID', `${path}: ${dirname(path)} does not exist: make it, or correct --model`);
}

/** Flags of the daemon whose values are paths. */
function pathFlags(role: RoleSetting): Set<string> {
  const usages = rowsWithFlag(role).map(({ flag }) => flag?.usage ?? '');
  const named = usages.filter((usage) => /<(?:file|directory)>$/.test(usage)).map((usage) => usage.split(' ')[0] ?? '');
  return new Set(['--config', ...named]);
}

/** The flags with every path made absolute: a service runs in another directory. Pure. */
export function withAbsolutePaths(role: RoleSetting, flags: readonly string[], directory: string): string[] {
  const names = pathFlags(role);
  return flags.map((word, index) => {
    if (names.has(flags[index - 1] ?? '')) return resolve(directory, word);
    const [name = '', ...rest] = word.split('=');
    return rest.length > 0 && names.has(name) ? `${name}=${resolve(directory, rest.join('='))}` : word;
  });
}

function pathsIn(role: RoleSetting, flags: readonly string[]): string[] {
  const names = pathFlags(role);
  return flags.flatMap((word, index) => {
    const value = names.has(flags[index - 1] ?? '') ? word : word.slice(word.indexOf('=') + 1);
    return isAbsolute(value) && (value === word || names.has(word.split('=')[0] ?? '')) ? [value] : [];
  });
}

/** Throws CONFIG_INVALID where the user of the services cannot read the path, or not reach it where nothing is there yet. */
function requireUsable(path: string, { statusOf }: MachineFacts): void {
  if (TEMPORARY.test(path)) {
    throw new OdmoeError(
      'CONFIG_INVALID',
      `${path}: a service of the system has a /tmp and a /var/tmp of its own, and does not see it: put it elsewhere, or use --user`,
    );
  }
  for (let at = path; ; at = dirname(at)) {
    const found = statusOf(at);
    const needed = found?.isDirectory() === true ? constants.S_IXOTH : constants.S_IROTH;
    if (found !== null && (found.mode & needed) === 0) {
      const remedy =
        'put it where everybody may read (Node and odmoe: installed for all users, as docs/packages.md says), or use --user';
      const where = at === path ? '' : `, because of ${at}`;
      throw new OdmoeError(
        'CONFIG_INVALID',
        `the user "${SERVICE_USER}" of the service cannot read ${path}${where}: ${remedy}`,
      );
    }
    if (at === dirname(at)) return;
  }
}
