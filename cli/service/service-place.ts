/** The directories of the files of services. */
import { join } from 'node:path';
import { dataDirectory } from '../../engine/environment/node-environment.js';
import { TOKEN_CREDENTIAL } from '../../engine/daemon/join-credential.js';
import { configHome, stateHome } from '../../shared/base/files/state-directory.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import { type ServiceScope, unitName } from './unit-text.js';

/** All paths are absolute, and begin with `root` where nothing else is said. */
export interface ServicePlace {
  readonly scope: ServiceScope;
  /** "/", or the root of another system, whose service manager does not run. */
  readonly root: string;
  readonly unitDirectory: string;
  /** The file that names the user of the services; null: they run as the user who installs them. */
  readonly sysusersPath: string | null;
  /** The directories of odmoe. Those of a user have also what is no service's. */
  readonly ownDirectories: readonly string[];
  /** The directory of the states of programs. */
  readonly stateHome: string;
  /** The directory with `packs`, into which daemons fetch. */
  readonly dataDirectory: string;
  /** As the service sees it: without the root. */
  readonly tokenPath: (role: RoleSetting) => string;
}

export const SYSUSERS_NAME = 'odmoe.conf';

/** The place of the system's services, in the system at the root. */
export function systemPlace(root: string): ServicePlace {
  return {
    scope: 'system',
    root,
    unitDirectory: join(root, 'etc/systemd/system'),
    sysusersPath: join(root, 'etc/sysusers.d', SYSUSERS_NAME),
    ownDirectories: ['var/lib/odmoe', 'var/cache/odmoe'].map((path) => join(root, path)),
    stateHome: join(root, 'var/lib'),
    dataDirectory: join(root, 'var/lib/odmoe'),
    tokenPath: (role) => `/etc/odmoe/join-${role}.token`,
  };
}

/** The place of this user's services. */
export function userPlace(): ServicePlace {
  return {
    scope: 'user',
    root: '/',
    unitDirectory: join(configHome(), 'systemd/user'),
    sysusersPath: null,
    ownDirectories: [join(stateHome(), 'odmoe'), dataDirectory(process.env)],
    stateHome: stateHome(),
    dataDirectory: dataDirectory(process.env),
    tokenPath: (role) => join(configHome(), 'odmoe/credentials', role, TOKEN_CREDENTIAL),
  };
}

export function unitPath({ unitDirectory }: ServicePlace, role: RoleSetting): string {
  return join(unitDirectory, unitName(role));
}
