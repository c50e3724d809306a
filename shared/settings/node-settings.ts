import type { PoolCapacities } from './cache-policies.js';
import type { ExpertStorage, RoleSetting } from './setting-choices.js';
import type { SettingsOf } from './setting.js';
import type { Settings } from './settings-table.js';

export interface KnownPeer {
  role: RoleSetting;
  /** Empty if the configuration gives no id. */
  id: string;
  /** "host:port". */
  address: string;
}

/** Groups whose values are those of their rows. */
type PlainGroup =
  | 'prediction'
  | 'align'
  | 'drafting'
  | 'placement'
  | 'shadow'
  | 'main'
  | 'batching'
  | 'network'
  | 'log';

/** All settings of one daemon: cluster.yaml and the flags, resolved and checked. No setting is optional from here on. */
export interface NodeSettings extends NodeIdentity, TunedSettings {}

interface NodeIdentity {
  role: RoleSetting;
  id: string;
  cluster: string;
  /** Directory of records that outlast the daemon. */
  stateDirectory: string;
  /** Directory of the pack; null: the own directory of a worker or shadow, into which it fetches main's pack. */
  modelPath: string | null;
  /** Address to listen on, and port (0: any free one). */
  listenHost: string;
  listenPort: number;
  /** Address that peers are to dial; null: derived from listenHost or the interface. */
  advertiseHost: string | null;
  discovery: SettingsOf<Settings['discovery']> & {
    /** The other daemons of cluster.yaml; empty under mdns unless listed. */
    peers: KnownPeer[];
  };
  joining: JoiningSettings;
  /** Address of main, to which a worker or shadow announces itself; null: it waits to be found. */
  mainAddress: string | null;
}

/** The settings by which the daemon comes into its cluster. */
export interface JoiningSettings {
  /** Listens on every network of its host. Main: makes the authority of the cluster if there is none. */
  lan: boolean;
  /** Runs without an authority where other machines reach it. */
  insecure: boolean;
  /** Token by which it joins the first time; null: it shows a code. */
  token: string | null;
  /** File with that token. */
  tokenPath: string | null;
  /** Joins again with a new key. */
  rejoin: boolean;
  /** False: nobody named a cluster, and the daemon takes the name of the one that it finds. */
  isClusterGiven: boolean;
  /** False: nobody gave an address to listen on. */
  isListenHostGiven: boolean;
}

type PlainSettings = { [Group in PlainGroup]: SettingsOf<Settings[Group]> };

export interface TunedSettings extends Omit<PlainSettings, 'main'> {
  device: Omit<SettingsOf<Settings['device']>, 'device'> & {
    /** auto: a GPU if one can be used and the budget holds its context, else the processor. Under emulation: the processor. */
    backend: 'auto' | 'cpu' | 'cuda';
    /** Number of the CUDA device, as the driver counts them; null: the first that can be used. */
    device: number | null;
  };
  main: PlainSettings['main'] & {
    /** The HTTP API; null: off. */
    http: HttpSettings | null;
  };
  /** The processor computes with the times and memory of profiled devices and a profiled network; null: no emulation. */
  emulation: EmulationSettings | null;
  worker: Omit<SettingsOf<Settings['worker']>, 'pools'> & {
    /** Most experts in each pool, in place of a plan for cacheBytes; null: plan. */
    pools: PoolCapacities | null;
    /** True for main's own worker on a device with a budget: its cached experts yield to the rows of sequences. */
    yields: boolean;
  };
}

/** Address and access rules of main's HTTP API. */
export interface HttpSettings {
  host: string;
  /** 0: any free port. */
  port: number;
  /** true: a user gave this address. false: main takes another port if this one is in use. */
  isAddressGiven: boolean;
  /** Host names, in addition to main's own, that a request may use. */
  hosts: readonly string[];
  /** Origins of web pages that may send requests; "*": any. */
  origins: readonly string[];
  /** File with one API key a line; AUTO_API_KEYS: main has a file of its own, with a key that it makes; null: none. */
  apiKeysPath: string | null;
}

/** Emulation of a testbed on other hardware (bench/profiles). */
export interface EmulationSettings {
  /** YAML file of the profile. */
  profilePath: string;
  expertStorage: ExpertStorage;
}
