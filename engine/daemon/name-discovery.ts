/** Discovery by DNS, in networks that have no multicast: Kubernetes, Docker. */
import { assertInvariant } from '../../shared/base/errors/assert-invariant.js';
import { OdmoeError, toOdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Logger } from '../../shared/base/log/logger.js';
import type { Runtime, Timer } from '../../shared/base/runtime/runtime.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';
import type { Discovery, Stoppable } from '../../shared/transport/discovery/discovery.js';
import { namedPeers, type NameService, systemNames } from './name-service.js';
import type { FoundPeer } from '../../shared/transport/discovery/txt-record.js';

/** Pause between two looks at the names. A machine that comes back has another address there. */
export const NAME_POLL_MS = 5000;

/** Main dials shadow and workers; these need main alone. */
const WANTED_ROLES: Readonly<Record<RoleSetting, readonly RoleSetting[]>> = {
  main: ['shadow', 'worker'],
  shadow: ['main'],
  worker: ['main'],
};

/** Discovery by the names of `discovery.name`. Daemons advertise nothing: records are made by what runs them. */
export function nameDiscovery(runtime: Runtime, openNames: () => NameService = systemNames): Discovery {
  return {
    advertise: async () => ({ stop: async () => undefined }),
    watchPeers: async (settings, onPeer, log) => {
      const watch = new NameWatch(settings, { runtime, names: openNames(), onPeer, log });
      return { stop: () => watch.stop() };
    },
  };
}

/** The discovery that the settings of a daemon name. Under static discovery that by multicast does nothing. */
export function discoveryByProvider(multicast: Discovery, names: Discovery): Discovery {
  const chosen = ({ discovery }: NodeSettings): Discovery => (discovery.provider === 'dns' ? names : multicast);
  return {
    advertise: (settings, identity, log) => chosen(settings).advertise(settings, identity, log),
    watchPeers: (settings, onPeer, log) => chosen(settings).watchPeers(settings, onPeer, log),
  };
}

interface NameWatchOptions {
  readonly runtime: Runtime;
  readonly names: NameService;
  readonly onPeer: (peer: FoundPeer) => void;
  readonly log: Logger;
}

/** Looks at the names at once and again and again. */
class NameWatch implements Stoppable {
  private timer: Timer | null = null;
  private look: Promise<void>;
  private stopped = false;
  /** The failure that was logged last, so that a lasting one is logged once. */
  private reported = '';

  constructor(
    private readonly settings: NodeSettings,
    private readonly options: NameWatchOptions,
  ) {
    this.look = this.lookOnce();
  }

  async stop(): Promise<void> {
    this.stopped = true;
    this.timer?.cancel();
    this.options.names.close();
    await this.look;
  }

  private async lookOnce(): Promise<void> {
    this.timer = null;
    await Promise.all(WANTED_ROLES[this.settings.role].map((role) => this.lookFor(role)));
    if (this.stopped) return;
    this.timer = this.options.runtime.after(NAME_POLL_MS, () => {
      this.look = this.lookOnce();
    });
  }

  private async lookFor(role: RoleSetting): Promise<void> {
    const { cluster, discovery } = this.settings;
    const { names, onPeer, log } = this.options;
    try {
      const found = await namedPeers(names, requireDomain(discovery.name), role);
      if (this.stopped) return;
      this.reported = '';
      for (const peer of found) onPeer({ ...peer, cluster });
    } catch (thrown) {
      const { message } = toOdmoeError(thrown);
      if (this.stopped || message === this.reported) return;
      this.reported = message;
      log.warn('names cannot be looked up: this node may not find others', { reason: message });
    }
  }
}

/** The addresses of the mains that a domain names; none where no name server answers. */
export async function namedMains(domain: string | null, names: NameService = systemNames()): Promise<string[]> {
  try {
    return (await namedPeers(names, requireDomain(domain), 'main')).map(({ address }) => address);
  } catch (thrown) {
    if (thrown instanceof OdmoeError) return [];
    throw thrown;
  } finally {
    names.close();
  }
}

/** resolveNodeSettings refuses dns discovery without a name. */
function requireDomain(name: string | null): string {
  assertInvariant(name !== null, 'The settings of dns discovery have a name.');
  return name;
}
