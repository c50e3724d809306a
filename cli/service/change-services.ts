/** Installs and removes services. */
import { chmod, chown, mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { joinedClusters } from '../../engine/daemon/cluster-directories.js';
import { forgetIdentity } from '../../engine/trust/identity-files.js';
import { EXIT_STATUSES, type ExitStatus } from '../../shared/base/errors/registry.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { writeFailure } from '../../shared/base/files/storage-error.js';
import { ANY_CLUSTER, stateDirectory } from '../../shared/base/files/state-directory.js';
import { withPeerDeadline } from '../../shared/base/runtime/peer-wait.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { runtime } from '../client/process-runtime.js';
import type { PlannedService } from './plan-service.js';
import {
  idOfService,
  type Purge,
  purgeFetchedPacks,
  purgeIdentity,
  purgePrefixStores,
  requireNoAuthority,
} from './purge-services.js';
import { type ServicePlace, SYSUSERS_NAME, unitPath } from './service-place.js';
import { SERVICE_USER, SYSUSERS_TEXT, unitName, unitText } from './unit-text.js';

/** Runs a program of the system, and throws what it says where it fails. */
export type RunProgram = (program: string, args: readonly string[]) => Promise<string>;

export interface ServiceHost {
  readonly place: ServicePlace;
  readonly run: RunProgram;
  readonly userName: string;
}

const ROLES: readonly RoleSetting[] = ['main', 'shadow', 'worker'];
/** Time for a daemon that has a token to join, before the user is told that it has not yet. */
const JOINING_MS = 20_000;
const JOINING_POLL_MS = 500;

/** How a daemon gets into its cluster. */
export interface ServiceJoining {
  /** By which it joins the first time; null: none. */
  readonly token: string | null;
  /** It forgets what it has got by joining before. */
  readonly rejoin: boolean;
}

/** Writes the files, and has the daemon started now and at each boot. */
export async function installService(
  planned: PlannedService,
  joining: ServiceJoining,
  host: ServiceHost,
): Promise<void> {
  const { place } = host;
  const { unit } = planned;
  const { role } = unit;
  if (joining.rejoin) await forgetMembership(planned, host);
  if (place.sysusersPath !== null) await write(place.sysusersPath, SYSUSERS_TEXT, PUBLIC_FILE);
  const tokenPath = join(place.root, place.tokenPath(role));
  // A unit without a token does not name the file of the one before.
  if (joining.token === null) await rm(tokenPath, { force: true });
  else await write(tokenPath, `${joining.token}\n`, PRIVATE_FILE);
  await write(unitPath(place, role), unitText(unit), PUBLIC_FILE);
  if (place.root !== '/') {
    await host.run('systemd-sysusers', [`--root=${place.root}`, SYSUSERS_NAME]);
    await giveDirectory(unit, place);
    await host.run('systemctl', [`--root=${place.root}`, 'enable', unitName(role)]);
    return;
  }
  if (place.scope === 'system') {
    await host.run('systemd-sysusers', [SYSUSERS_NAME]);
    await giveDirectory(unit, place);
    // Without it, the services of a user end with the last session, and do not start at a boot.
  } else await host.run('loginctl', ['enable-linger', host.userName]);
  await systemctl(host, 'daemon-reload');
  await systemctl(host, 'enable', unitName(role));
  // A daemon that ran already gets its new flags.
  await systemctl(host, 'restart', '--no-block', unitName(role));
}

/** Makes the directory into which a worker will fetch, which the user of the services could not. One with files keeps its owner. */
async function giveDirectory({ fetchesInto }: PlannedService['unit'], { root }: ServicePlace): Promise<void> {
  if (fetchesInto === null) return;
  const directory = join(root, fetchesInto);
  try {
    await mkdir(directory, { recursive: true, mode: 0o755 });
    if ((await readdir(directory)).length > 0) return;
    const owner = await serviceUser(root);
    if (owner !== null) await chown(directory, owner.user, owner.group);
  } catch (thrown) {
    throw writeFailure(thrown, directory, null);
  }
}

/** Stops the daemon, which writes these files, and removes its keys of all clusters. */
async function forgetMembership({ unit, settings }: PlannedService, host: ServiceHost): Promise<void> {
  const { place } = host;
  const isInstalled = await fileExists(unitPath(place, unit.role));
  if (isInstalled && place.root === '/') await systemctl(host, 'stop', unitName(unit.role));
  for (const directory of await clustersOf(settings, place)) await forgetIdentity(directory, settings.id);
}

/** The directories of the clusters that the daemon of the service has joined. */
export async function clustersOf({ id }: Pick<NodeSettings, 'id'>, { stateHome }: ServicePlace): Promise<string[]> {
  return joinedClusters(stateDirectory(ANY_CLUSTER, stateHome), id);
}

const PUBLIC_FILE = { file: 0o644, directory: 0o755 };
const PRIVATE_FILE = { file: 0o600, directory: 0o755 };

async function write(path: string, text: string, mode: { file: number; directory: number }): Promise<void> {
  await mkdir(dirname(path), { recursive: true, mode: mode.directory });
  await replaceFile(path, text, mode.file);
  await chmod(path, mode.file);
}

async function systemctl({ place, run }: ServiceHost, ...args: string[]): Promise<string> {
  return run('systemctl', [...(place.scope === 'user' ? ['--user'] : []), ...args]);
}

/** Removes the file with the token where the daemon has joined, so that it is good for nobody else. True: it is not there any more. */
export async function forgetUsedToken(
  { role, id }: Pick<NodeSettings, 'role' | 'id'>,
  place: ServicePlace,
): Promise<boolean> {
  const path = join(place.root, place.tokenPath(role));
  if (!(await fileExists(path))) return true;
  if ((await clustersOf({ id }, place)).length === 0) return false;
  await rm(path, { force: true });
  return true;
}

/** The same, for a daemon that joins now. */
export async function awaitJoined(
  settings: () => Pick<NodeSettings, 'role' | 'id'>,
  place: ServicePlace,
): Promise<boolean> {
  return withPeerDeadline(runtime, JOINING_MS, async (hasPassed) => {
    for (;;) {
      if (await forgetUsedToken(settings(), place)) return true;
      if (hasPassed()) return false;
      await runtime.sleep(JOINING_POLL_MS);
    }
  });
}

/** `removed`: it was there, though the daemon had joined. `unread`: this user may not see whether it has. */
export type TokenState = 'none' | 'kept' | 'removed' | 'unread';

/** Looks for a token that was left behind, and removes it where it has done its work. `isRoot`: of this user. */
export async function tidyToken(role: RoleSetting, place: ServicePlace, isRoot: boolean): Promise<TokenState> {
  if (!(await fileExists(join(place.root, place.tokenPath(role))))) return 'none';
  if (place.scope === 'system' && !isRoot) return 'unread';
  const id = await idOfService(role, place);
  return (await forgetUsedToken({ role, id }, place)) ? 'removed' : 'kept';
}

/** The roles that are installed as services. */
export async function installedRoles(place: ServicePlace): Promise<RoleSetting[]> {
  const roles: RoleSetting[] = [];
  for (const role of ROLES) if (await fileExists(unitPath(place, role))) roles.push(role);
  return roles;
}

/**
 * Stops the daemons and removes their services, and with the last service the user of the services.
 * Returns the paths that are gone.
 * @throws USAGE where `purge` would remove an authority that the user did not name
 */
export async function removeServices(
  roles: readonly RoleSetting[],
  purge: Purge,
  host: ServiceHost,
): Promise<string[]> {
  const { place } = host;
  await requireNoAuthority(purge, place);
  const gone: string[] = [];
  const remove = async (path: string): Promise<void> => {
    if (!(await fileExists(path))) return;
    await rm(path, { recursive: true, force: true });
    gone.push(path);
  };
  const isOwnOfUser = purge === 'own' && place.scope === 'user';
  for (const role of roles) {
    const id = isOwnOfUser ? await idOfService(role, place) : null;
    const name = unitName(role);
    if (place.root === '/') await systemctl(host, 'disable', '--now', name);
    else await host.run('systemctl', [`--root=${place.root}`, 'disable', name]);
    await remove(unitPath(place, role));
    await remove(join(place.root, place.tokenPath(role)));
    if (id !== null) gone.push(...(await purgeIdentity(id, place)));
  }
  if (place.root === '/') await systemctl(host, 'daemon-reload');
  if ((await installedRoles(place)).length > 0) return gone;
  if (isOwnOfUser) gone.push(...(await purgePrefixStores(place)), ...(await purgeFetchedPacks(place)));
  else if (purge !== 'nothing') for (const directory of place.ownDirectories) await remove(directory);
  if (place.sysusersPath !== null) {
    await remove(place.sysusersPath);
    // Files that stay keep their owner.
    if (purge !== 'nothing' && (await serviceUser(place.root)) !== null) {
      await host.run('userdel', [...(place.root === '/' ? [] : ['--root', place.root]), SERVICE_USER]);
    }
  }
  return gone;
}

/** Numbers of the user of the services and of its group; null: the system has none. */
async function serviceUser(root: string): Promise<{ user: number; group: number } | null> {
  const users = await readFile(join(root, 'etc/passwd'), 'utf8').catch(() => '');
  const line = users.split('\n').find((one) => one.startsWith(`${SERVICE_USER}:`));
  if (line === undefined) return null;
  const [, , user, group] = line.split(':');
  return { user: Number(user), group: Number(group) };
}

/** State of a service, by systemd and by the daemon's own words. */
export interface ServiceState {
  readonly unit: string;
  /** "active (running)". */
  readonly state: string;
  readonly words: string;
  readonly restarts: number;
  readonly isActive: boolean;
  /** The exit status for which it is not started again; null: it runs, or will be started again, or was stopped. */
  readonly finalStatus: ExitStatus | null;
}

/** CLD_EXITED of waitid(2). */
const CHILD_EXITED = '1';

export async function serviceState(role: RoleSetting, host: ServiceHost): Promise<ServiceState> {
  const wanted = ['ActiveState', 'SubState', 'StatusText', 'NRestarts', 'ExecMainCode', 'ExecMainStatus'];
  const shown = await systemctl(host, 'show', ...wanted.map((name) => `--property=${name}`), unitName(role));
  const values = new Map(shown.split('\n').map((line) => [line.split('=')[0], line.slice(line.indexOf('=') + 1)]));
  const active = values.get('ActiveState') ?? 'unknown';
  // Otherwise the status is the number of a signal.
  const hasExited = values.get('ExecMainCode') === CHILD_EXITED;
  return {
    unit: basename(unitPath(host.place, role)),
    state: `${active} (${values.get('SubState') ?? ''})`,
    words: values.get('StatusText') ?? '',
    restarts: Number(values.get('NRestarts') ?? 0),
    isActive: active === 'active',
    finalStatus: active === 'failed' && hasExited ? finalStatus(Number(values.get('ExecMainStatus'))) : null,
  };
}

function finalStatus(status: number): ExitStatus | null {
  if (!(status in EXIT_STATUSES)) return null;
  const known = status as ExitStatus;
  return EXIT_STATUSES[known].mayMend ? null : known;
}
