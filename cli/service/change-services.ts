/** Installs and removes services. */
import { chmod, mkdir, readFile, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { joinedClusters } from '../../engine/daemon/find-cluster.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { replaceFile } from '../../shared/base/files/replace-file.js';
import { ANY_CLUSTER, stateDirectory } from '../../shared/base/files/state-directory.js';
import { withPeerDeadline } from '../../shared/base/runtime/peer-wait.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { runtime } from '../client/process-runtime.js';
import type { PlannedService } from './plan-service.js';
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

/** Writes the files, and has the daemon started now and at each boot. `token`: by which it joins the first time; null: none. */
export async function installService({ unit }: PlannedService, token: string | null, host: ServiceHost): Promise<void> {
  const { place } = host;
  const { role } = unit;
  if (place.sysusersPath !== null) await write(place.sysusersPath, SYSUSERS_TEXT, PUBLIC_FILE);
  if (token !== null) await write(join(place.root, place.tokenPath(role)), `${token}\n`, PRIVATE_FILE);
  await write(unitPath(place, role), unitText(unit), PUBLIC_FILE);
  if (place.root !== '/') {
    await host.run('systemd-sysusers', [`--root=${place.root}`, SYSUSERS_NAME]);
    await host.run('systemctl', [`--root=${place.root}`, 'enable', unitName(role)]);
    return;
  }
  if (place.scope === 'system') await host.run('systemd-sysusers', [SYSUSERS_NAME]);
  // Without it, the services of a user end with the last session, and do not start at a boot.
  else await host.run('loginctl', ['enable-linger', host.userName]);
  await systemctl(host, 'daemon-reload');
  await systemctl(host, 'enable', unitName(role));
  // A daemon that ran already gets its new flags.
  await systemctl(host, 'restart', '--no-block', unitName(role));
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
  const joined = await joinedClusters(stateDirectory(ANY_CLUSTER, place.stateHome), id);
  if (joined.length === 0) return false;
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

/** The roles that are installed as services. */
export async function installedRoles(place: ServicePlace): Promise<RoleSetting[]> {
  const roles: RoleSetting[] = [];
  for (const role of ROLES) if (await fileExists(unitPath(place, role))) roles.push(role);
  return roles;
}

/**
 * Stops the daemons and removes their services, and with the last service the user of the services. `purge`: also what the daemons have stored.
 * Returns the paths that are gone.
 */
export async function removeServices(
  roles: readonly RoleSetting[],
  purge: boolean,
  host: ServiceHost,
): Promise<string[]> {
  const { place } = host;
  const gone: string[] = [];
  const remove = async (path: string): Promise<void> => {
    if (!(await fileExists(path))) return;
    await rm(path, { recursive: true, force: true });
    gone.push(path);
  };
  for (const role of roles) {
    const name = unitName(role);
    if (place.root === '/') await systemctl(host, 'disable', '--now', name);
    else await host.run('systemctl', [`--root=${place.root}`, 'disable', name]);
    await remove(unitPath(place, role));
    await remove(join(place.root, place.tokenPath(role)));
  }
  if (place.root === '/') await systemctl(host, 'daemon-reload');
  if ((await installedRoles(place)).length > 0) return gone;
  if (purge) for (const directory of place.ownDirectories) await remove(directory);
  if (place.sysusersPath !== null) {
    await remove(place.sysusersPath);
    // Files that stay keep their owner.
    if (purge && (await hasServiceUser(place))) {
      await host.run('userdel', [...(place.root === '/' ? [] : ['--root', place.root]), SERVICE_USER]);
    }
  }
  return gone;
}

async function hasServiceUser({ root }: ServicePlace): Promise<boolean> {
  const users = await readFile(join(root, 'etc/passwd'), 'utf8').catch(() => '');
  return users.split('\n').some((line) => line.startsWith(`${SERVICE_USER}:`));
}

/** State of a service, by systemd and by the daemon's own words. */
export interface ServiceState {
  readonly unit: string;
  /** "active (running)". */
  readonly state: string;
  readonly words: string;
  readonly restarts: number;
  readonly isActive: boolean;
}

export async function serviceState(role: RoleSetting, host: ServiceHost): Promise<ServiceState> {
  const wanted = ['ActiveState', 'SubState', 'StatusText', 'NRestarts'];
  const shown = await systemctl(host, 'show', ...wanted.map((name) => `--property=${name}`), unitName(role));
  const values = new Map(shown.split('\n').map((line) => [line.split('=')[0], line.slice(line.indexOf('=') + 1)]));
  const active = values.get('ActiveState') ?? 'unknown';
  return {
    unit: basename(unitPath(host.place, role)),
    state: `${active} (${values.get('SubState') ?? ''})`,
    words: values.get('StatusText') ?? '',
    restarts: Number(values.get('NRestarts') ?? 0),
    isActive: active === 'active',
  };
}
