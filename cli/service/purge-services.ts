/** Removes what services have stored, and nothing that this user has for other ends. */
import { readdir, readFile, rm } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { joinedClusters, localAuthorities } from '../../engine/daemon/cluster-directories.js';
import { removeStore } from '../../engine/environment/store-files.js';
import { isFetchedPackName } from '../../engine/fetching/main-asker.js';
import { forgetIdentity, identityDirectory } from '../../engine/trust/identity-files.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { fileExists } from '../../shared/base/files/read-file.js';
import { ANY_CLUSTER, prefixStoreDirectory, stateDirectory } from '../../shared/base/files/state-directory.js';
import { isClusterName } from '../../shared/base/text/identifier.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { askHealth, daemonsOfHomes } from './ask-health.js';
import { daemonRequest } from './plan-service.js';
import { type ServicePlace, unitPath } from './service-place.js';
import { flagsOfUnit } from './unit-text.js';

/**
 * nothing: only the services go. own: also the keys of their daemons, what mains have kept of prompts, and the packs that daemons have fetched. everything: also authorities of
 * clusters and all else in the directories of odmoe.
 */
export type Purge = 'nothing' | 'own' | 'everything';

/**
 * The system's services share their directories with nobody, so `own` is all of them; an authority there cannot be made again.
 * @throws USAGE the place has one, and the user did not ask to remove it
 */
export async function requireNoAuthority(purge: Purge, { scope, stateHome }: ServicePlace): Promise<void> {
  if (scope === 'user' || purge !== 'own') return;
  const [authority] = await localAuthorities(stateDirectory(ANY_CLUSTER, stateHome), null);
  if (authority === undefined) return;
  throw new OdmoeError(
    'USAGE',
    `${authority} has the authority of cluster "${basename(authority)}", without which all its nodes have to join another one: save it by odmoe cluster backup and add --everything, or leave out --purge`,
  );
}

/** The id of the daemon that is installed as a service; without a unit that of a daemon without flags. */
export async function idOfService(role: RoleSetting, place: ServicePlace): Promise<string> {
  const flags = await installedFlags(role, place);
  return daemonRequest(role, flags, place.stateHome, place.root).settings.id;
}

/** The flags of the daemon that is installed as a service; none without a unit. */
export async function installedFlags(role: RoleSetting, place: ServicePlace): Promise<string[]> {
  const path = unitPath(place, role);
  return (await fileExists(path)) ? flagsOfUnit(await readFile(path, 'utf8')) : [];
}

/** Removes the keys of a daemon of this user. Returns the paths that are gone. */
export async function purgeIdentity(id: string, { stateHome }: ServicePlace): Promise<string[]> {
  const clusters = await joinedClusters(stateDirectory(ANY_CLUSTER, stateHome), id);
  for (const directory of clusters) await forgetIdentity(directory, id);
  return clusters.map((directory) => identityDirectory(directory, id));
}

/** Removes the packs that daemons of this user have fetched, unless one still runs. Returns the paths that are gone. */
export async function purgeFetchedPacks({ stateHome, dataDirectory }: ServicePlace): Promise<string[]> {
  const home = dirname(stateDirectory(ANY_CLUSTER, stateHome));
  for (const { path } of await daemonsOfHomes([home], null)) if (await runs(path)) return [];
  const packs = join(dataDirectory, 'packs');
  const names = await readdir(packs).catch(() => []);
  const fetched = names.filter(isFetchedPackName).map((name) => join(packs, name));
  for (const directory of fetched) await rm(directory, { recursive: true, force: true });
  return fetched;
}

/** Removes the rows of prompts that mains of this user have kept, but for those of a main that runs. Returns the paths that are gone. */
export async function purgePrefixStores({ stateHome }: ServicePlace): Promise<string[]> {
  const home = dirname(stateDirectory(ANY_CLUSTER, stateHome));
  const gone: string[] = [];
  for (const name of (await readdir(home).catch(() => [])).filter(isClusterName)) {
    const directory = prefixStoreDirectory(join(home, name));
    if (await removeStore(directory)) gone.push(directory);
  }
  return gone;
}

/** A daemon that does not answer may still read its pack. */
async function runs(socketPath: string): Promise<boolean> {
  return askHealth(socketPath).then(
    (health) => health !== null,
    () => true,
  );
}
