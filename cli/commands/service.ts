import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { userInfo } from 'node:os';
import { resolve } from 'node:path';
import { promisify } from 'node:util';
import { Argument, type Command, InvalidArgumentError } from 'commander';
import { readJoinTokenFile } from '../../engine/daemon/enter-cluster.js';
import { requireJoinToken } from '../../engine/trust/join-token.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { EXIT_STATUSES, type ExitStatus } from '../../shared/base/errors/registry.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { printableJson, printableLine } from '../../shared/base/text/printable-text.js';
import { shellWord } from '../../shared/base/text/shell-word.js';
import { standardError, standardOutput } from '../../shared/base/text/text-output.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import {
  awaitJoined,
  clustersOf,
  installedRoles,
  installService,
  removeServices,
  type RunProgram,
  type ServiceHost,
  serviceState,
  tidyToken,
  type TokenState,
} from '../service/change-services.js';
import { factsOfMachine, planService } from '../service/plan-service.js';
import { installedFlags, type Purge } from '../service/purge-services.js';
import { type ServicePlace, systemPlace, unitPath, userPlace } from '../service/service-place.js';
import { unitName, unitText } from '../service/unit-text.js';

interface PlaceFlags {
  user: boolean;
  root?: string;
}

const ROLES: readonly RoleSetting[] = ['main', 'shadow', 'worker'];

/** `odmoe service`: daemons that systemd starts at each boot. */
export function registerServiceCommand(program: Command): void {
  const service = program
    .command('service')
    .description('have systemd run a daemon of this machine: now, after a failure, and after each boot');
  registerInstall(service);
  registerStatus(service);
  registerLogs(service);
  registerRemove(service);
}

function withPlaceFlags(command: Command): Command {
  return command
    .option('--user', 'a service of this user alone, without root', false)
    .option('--root <directory>', 'change the system below this directory, such as an image of a card');
}

const roleArgument = (words: string): Argument => new Argument('[role]', words).choices(ROLES);

interface InstallFlags extends PlaceFlags {
  join?: string;
  joinFile?: string;
  rejoin: boolean;
  dryRun: boolean;
}

function registerInstall(service: Command): void {
  const command = service
    .command('install')
    .description('write the unit of a daemon, and start it')
    .addArgument(roleArgument('the daemon').default('worker').argParser(roleOrFlag))
    .argument('[flags...]', "the daemon's own flags, behind --")
    .option('--join <token>', 'join the cluster by this token, the first time')
    .option('--join-file <file>', 'a file with that token')
    .option('--rejoin', 'forget the key by which the daemon is in a cluster, and join again', false)
    .option('--dry-run', 'print the unit, and change nothing', false);
  withPlaceFlags(command)
    .addHelpText(
      'after',
      `
The daemon runs as the user "odmoe" (made where it is missing), reads /etc/odmoe, and keeps what it has in /var/lib/odmoe. Run this again to change
its flags. A token lies in a file that only root can read, until the daemon has joined. Without one, odmoe service logs shows the code for odmoe accept.

Examples:
  sudo odmoe service install
  sudo odmoe service install --join odmoe1-...
  sudo odmoe service install main -- --lan --model /srv/qwen3.pack
  odmoe service install --user worker -- --memory-budget "8 GiB"`,
    )
    .action(async (word: string, flags: string[], options: InstallFlags) => {
      const [role, ...rest] = isRole(word) ? [word, ...flags] : (['worker', word, ...flags] as const);
      await install(role, rest, options);
    });
}

const isRole = (word: string): word is RoleSetting => ROLES.some((role) => role === word);

/** Without a role, the first of the daemon's own flags behind "--" stands in its place. */
function roleOrFlag(word: string): string {
  if (isRole(word) || word.startsWith('-')) return word;
  throw new InvalidArgumentError(`Allowed choices are ${ROLES.join(', ')}.`);
}

async function install(role: RoleSetting, flags: readonly string[], options: InstallFlags): Promise<void> {
  const place = placeOf(options);
  const token = await tokenOf(options);
  const { scope, stateHome } = place;
  const wanted = { role, scope, flags, stateHome, tokenPath: token === null ? null : place.tokenPath(role) };
  const facts = factsOfMachine(place.root);
  const planned = planService(wanted, facts);
  if (options.dryRun) {
    standardOutput.write(unitText(planned.unit));
    return;
  }
  const host = hostOf(place);
  const before = options.rejoin ? [] : await clustersOf(planned.settings, place);
  await installService(planned, { token, rejoin: options.rejoin }, host);
  const name = unitName(role);
  if (place.root !== '/') {
    standardOutput.write(`${unitPath(place, role)} is written: the ${role} starts when that system boots\n`);
    return;
  }
  standardOutput.write(
    `${name} is installed and starts, now and at each boot: odmoe service status, odmoe service logs\n`,
  );
  if (token === null) return;
  // The daemon makes a mark of this host, which is in its id.
  const isIn = await awaitJoined(() => planService(wanted, facts).settings, place);
  standardOutput.write(`${joiningWords(role, place, isIn, before.length > 0)}\n`);
}

function joiningWords(role: RoleSetting, place: ServicePlace, isIn: boolean, wasIn: boolean): string {
  const gone = 'the token is removed from this machine';
  if (isIn && wasIn)
    return `the ${role} had joined before and keeps its key; ${gone}; --rejoin would make it join again`;
  if (isIn) return `the ${role} has joined; ${gone}`;
  const path = place.tokenPath(role);
  return `the ${role} has not joined yet; the token stays in ${path} until odmoe service status finds that it has`;
}

async function tokenOf({ join, joinFile }: InstallFlags): Promise<string | null> {
  if (join !== undefined && joinFile !== undefined) {
    throw new OdmoeError('USAGE', 'give one of --join and --join-file, not both');
  }
  const token = join ?? (joinFile === undefined ? null : await readJoinTokenFile(joinFile));
  if (token !== null) requireJoinToken(token);
  return token;
}

function registerStatus(service: Command): void {
  const command = service
    .command('status')
    .description('what systemd and the daemons say of the services')
    .option('--json', 'print one JSON object and nothing else', false);
  withPlaceFlags(command)
    .addHelpText(
      'after',
      '\nExit status 0: all services run. 3: one does not, or there is none.\n\nExample:\n  odmoe service status',
    )
    .action(async (options: PlaceFlags & { json: boolean }) => {
      const host = runningHostOf(options);
      const states = [];
      const isRoot = userInfo().uid === 0;
      for (const role of await requireInstalled(host.place)) {
        const joinToken = await tidyToken(role, host.place, isRoot);
        const flags = await installedFlags(role, host.place);
        states.push({ role, ...(await serviceState(role, host)), joinToken, flags });
      }
      const lines = states.flatMap(({ role, unit, state, words, restarts, finalStatus, joinToken, flags }) => {
        const again = restarts === 0 ? '' : `, restarted ${restarts} times`;
        const end = finalStatus === null ? '' : `; ${endWords(finalStatus)}`;
        const line = printableLine(`${unit}  ${state}${again}${words === '' ? '' : `: ${words}`}${end}`);
        return [
          line,
          `  installed by: ${installCommand(role, flags, host.place)}`,
          ...tokenWords(joinToken, role, host.place),
        ];
      });
      const text = options.json ? printableJson({ services: snakeCaseKeys(states) }) : lines.join('\n');
      standardOutput.write(`${text}\n`);
      const down = states.filter(({ isActive }) => !isActive).map(({ unit }) => unit);
      if (down.length === 0) return;
      throw new OdmoeError('DAEMON_NOT_SERVING', `${down.join(', ')}: not active; odmoe service logs says why`);
    });
}

/** The command that writes the unit anew with the flags that it has, as a shell takes it. Pure. */
export function installCommand(
  role: RoleSetting,
  flags: readonly string[],
  { scope }: Pick<ServicePlace, 'scope'>,
): string {
  const command = scope === 'system' ? 'sudo odmoe service install' : 'odmoe service install --user';
  return printableLine([command, role, ...(flags.length === 0 ? [] : ['--', ...flags.map(shellWord)])].join(' '));
}

function tokenWords(state: TokenState, role: RoleSetting, place: ServicePlace): string[] {
  const path = place.tokenPath(role);
  if (state === 'none') return [];
  if (state === 'removed') return [`  the ${role} has joined: its token, which was still in ${path}, is removed`];
  if (state === 'kept') return [`  ${path} has a token until the ${role} has joined`];
  return [`  ${path} has a token: sudo odmoe service status removes it if the ${role} has joined`];
}

function endWords(status: ExitStatus): string {
  return `it is not started again, because it ended with status ${status}: ${EXIT_STATUSES[status].meaning}`;
}

interface LogFlags extends PlaceFlags {
  follow: boolean;
  lines: string;
}

function registerLogs(service: Command): void {
  const command = service
    .command('logs')
    .description('what the daemons have logged (journalctl)')
    .addArgument(roleArgument('only this daemon'))
    .option('-f, --follow', 'go on with what they log from now on', false)
    .option('-n, --lines <number>', 'the newest lines', '100');
  withPlaceFlags(command)
    .addHelpText('after', '\nExamples:\n  odmoe service logs -f\n  odmoe service logs worker -n 1000')
    .action(async (role: RoleSetting | undefined, flags: LogFlags) => {
      const { place } = runningHostOf(flags);
      const roles = role === undefined ? await requireInstalled(place) : [role];
      const units = roles.flatMap((one) => [place.scope === 'user' ? '--user-unit' : '--unit', unitName(one)]);
      const args = [...units, `--lines=${flags.lines}`, '--no-pager', ...(flags.follow ? ['--follow'] : [])];
      const child = spawn('journalctl', args, { stdio: 'inherit' });
      const [status] = (await once(child, 'close')) as [number | null];
      process.exitCode = status ?? 1;
    });
}

function registerRemove(service: Command): void {
  const command = service
    .command('remove')
    .description('stop the daemons and remove their services')
    .addArgument(roleArgument('only this daemon'))
    .option('--purge', 'also remove their keys and the packs that they have fetched', false)
    .option(
      '--everything',
      'with --purge: also authorities of clusters, and all else in the directories of odmoe',
      false,
    );
  withPlaceFlags(command)
    .addHelpText(
      'after',
      `
The system's services share /var/lib/odmoe and /var/cache/odmoe with nobody: --purge removes both, unless a cluster's authority is there. With
--user, it leaves chats, operators' keys, authorities and pulled packs; fetched packs go with the last service, when no daemon runs.

Examples:
  sudo odmoe service remove
  sudo odmoe service remove worker
  sudo odmoe service remove --purge`,
    )
    .action(async (role: RoleSetting | undefined, flags: RemoveFlags) => {
      const host = hostOf(placeOf(flags));
      const { place } = host;
      const roles = role === undefined ? await requireInstalled(place) : [role];
      const gone = await removeServices(roles, purgeOf(flags), host);
      const stays = place.ownDirectories.filter((directory) => existsSync(directory));
      const kept = stays.length === 0 ? '' : `\nKept: ${stays.join(', ')} (${keptWords(place)})`;
      standardOutput.write(`Removed: ${gone.join(', ')}${kept}\n`);
    });
}

interface RemoveFlags extends PlaceFlags {
  purge: boolean;
  everything: boolean;
}

function purgeOf({ purge, everything }: RemoveFlags): Purge {
  if (everything && !purge) throw new OdmoeError('USAGE', '--everything goes with --purge: give both');
  if (!purge) return 'nothing';
  return everything ? 'everything' : 'own';
}

function keptWords({ scope }: ServicePlace): string {
  if (scope === 'system') return '--purge removes them with the last service';
  return 'they have more than the services: --purge --everything removes all of it with the last service';
}

async function requireInstalled(place: ServicePlace): Promise<RoleSetting[]> {
  const roles = await installedRoles(place);
  if (roles.length > 0) return roles;
  const where = place.scope === 'user' ? 'of this user' : 'of this system';
  throw new OdmoeError(
    'DAEMON_NOT_SERVING',
    `no daemon is a service ${where} (${place.unitDirectory}): odmoe service install makes one`,
  );
}

function placeOf({ user, root }: PlaceFlags): ServicePlace {
  if (user && root !== undefined) throw new OdmoeError('USAGE', 'give one of --user and --root, not both');
  return user ? userPlace() : systemPlace(root === undefined ? '/' : resolve(root));
}

/** The place, and the service manager that can change it. Throws USAGE where there is none, or this user may not. */
function hostOf(place: ServicePlace): ServiceHost {
  if (place.root === '/') requireServiceManager();
  const { uid, username } = userInfo();
  if (place.scope === 'system' && uid !== 0) {
    throw new OdmoeError(
      'USAGE',
      'only root changes services of the system: say sudo odmoe service ..., or add --user',
    );
  }
  return { place, run: runProgram, userName: username };
}

function runningHostOf(flags: PlaceFlags): ServiceHost {
  const place = placeOf(flags);
  if (place.root !== '/') throw new OdmoeError('USAGE', 'nothing runs below --root: leave it out');
  requireServiceManager();
  return { place, run: runProgram, userName: userInfo().username };
}

function requireServiceManager(): void {
  if (existsSync('/run/systemd/system')) return;
  throw new OdmoeError(
    'USAGE',
    'systemd does not run this machine (a container, or WSL without it): start odmoe main, shadow or worker by what does; --dry-run prints the unit, --root DIRECTORY changes an image',
  );
}

const runFile = promisify(execFile);

const runProgram: RunProgram = async (program, args) => {
  try {
    const { stdout, stderr } = await runFile(program, args);
    standardError.write(stderr);
    return stdout;
  } catch (thrown) {
    const said = (thrown as { stderr?: string }).stderr?.trim() ?? '';
    const reason = said === '' ? (thrown as Error).message : said;
    throw new OdmoeError('STORAGE_FAILED', `${program} ${args.join(' ')} failed: ${reason}`, { cause: thrown });
  }
};
