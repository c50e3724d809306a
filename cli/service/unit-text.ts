/** The text of the systemd unit of a daemon. */
import { dirname } from 'node:path';
import { NO_TOKEN, TOKEN_CREDENTIAL } from '../../engine/daemon/join-credential.js';
import { EXIT_STATUSES } from '../../shared/base/errors/registry.js';
import type { RoleSetting } from '../../shared/settings/setting-choices.js';

/** The service manager that runs the daemon: that of the system, as a user of its own, or that of one user. */
export type ServiceScope = 'system' | 'user';

/** A daemon as a service. All paths are absolute. */
export interface ServiceUnit {
  readonly role: RoleSetting;
  readonly scope: ServiceScope;
  /** Node, and the odmoe that it runs. */
  readonly node: string;
  readonly program: string;
  /** The daemon's flags. */
  readonly flags: readonly string[];
  /** The program, the model or the configuration lies in a home directory, which the daemon must be able to read. */
  readonly readsHomes: boolean;
  /** A directory outside of the service's own, into which the daemon fetches; null: there is none. */
  readonly fetchesInto: string | null;
  /** Groups whose members may open the GPUs of this machine. */
  readonly deviceGroups: readonly string[];
  /** NVIDIA's program that makes the files of GPUs in /dev, which a daemon without privileges cannot; null: it is not here. */
  readonly gpuStarter: string | null;
  /** A file with a join token; under the service manager of a user it has the credential's name. Null: there is none. */
  readonly tokenPath: string | null;
  /** Most memory of the daemon; null: nothing bounds it. */
  readonly memoryBytes: number | null;
  /** The service manager knows RestartSteps, by which the pause before a restart grows. */
  readonly hasRestartSteps: boolean;
  /** Longest time from the request to stop to the end of the process. */
  readonly stopMs: number;
}

/** The user as which the system's services run. */
export const SERVICE_USER = 'odmoe';

/** `odmoe-worker.service`. */
export function unitName(role: RoleSetting): string {
  return `odmoe-${role}.service`;
}

/**
 * The text of the unit. What it leaves out on purpose: MemoryDenyWriteExecute (V8 writes the code that it runs), PrivateDevices, ProtectClock and
 * DeviceAllow (they hide GPUs), ProcSubset (memory and processors are read from /proc), and the target network-online, for which a machine
 * without a lease waits. Pure.
 */
export function unitText(unit: ServiceUnit): string {
  const sections = [
    ['Unit', unitLines(unit)],
    ['Service', [...processLines(unit), ...limitLines(unit), ...guardLines(unit)]],
    ['Install', [`WantedBy=${unit.scope === 'system' ? 'multi-user.target' : 'default.target'}`]],
  ] as const;
  const text = sections.map(([name, lines]) => `[${name}]\n${lines.join('\n')}\n`).join('\n');
  return `# Written by odmoe service install. Put changes of your own into a drop-in: systemctl edit ${unitName(unit.role)}\n${text}`;
}

function unitLines({ role, scope, node, program }: ServiceUnit): string[] {
  return [
    `Description=odmoe ${role}`,
    ...(scope === 'system' ? ['After=network.target nvidia-persistenced.service'] : []),
    // A daemon whose disk, GPU or network comes late is started until it goes.
    'StartLimitIntervalSec=0',
    // Systemd would start the service again and again if odmoe was uninstalled under it.
    ...[node, program].map((path) => `ConditionPathExists=${path.replaceAll('%', '%%')}`),
  ];
}

/** The exit statuses after which a person has to change something first. */
const FINAL_STATUSES = Object.entries(EXIT_STATUSES)
  .filter(([, { mayMend }]) => !mayMend)
  .map(([status]) => status);

/** Until 60 s: systemd counts restarts since the last start by hand, so a daemon that fails once a month will wait as long, too. */
const GROWING_PAUSE = ['RestartSteps=5', 'RestartMaxDelaySec=60'];

function processLines(unit: ServiceUnit): string[] {
  const { role, scope, node, program, flags, gpuStarter, tokenPath, stopMs, hasRestartSteps } = unit;
  const isSystem = scope === 'system';
  return [
    'Type=notify',
    'NotifyAccess=main',
    // "+": as root; "-": whether or not there is a GPU.
    ...(isSystem && gpuStarter !== null ? [`ExecStartPre=-+${quotedWord(gpuStarter)} -u -c 0`] : []),
    `ExecStart=${[node, program, role, ...flags].map(quotedWord).join(' ')}`,
    'Restart=on-failure',
    'RestartSec=5',
    ...(hasRestartSteps ? GROWING_PAUSE : []),
    `RestartPreventExitStatus=${FINAL_STATUSES.join(' ')}`,
    'TimeoutStartSec=90',
    `TimeoutStopSec=${Math.ceil(stopMs / 1000)}`,
    'WatchdogSec=60',
    ...(isSystem ? systemLines() : []),
    ...(tokenPath === null ? [] : tokenLines(tokenPath, scope)),
  ];
}

/** The daemon's own user, and its directories by the Filesystem Hierarchy Standard. */
function systemLines(): string[] {
  return [
    `User=${SERVICE_USER}`,
    `Group=${SERVICE_USER}`,
    'StateDirectory=odmoe',
    'StateDirectoryMode=0700',
    'CacheDirectory=odmoe',
    'CacheDirectoryMode=0700',
    'ConfigurationDirectory=odmoe',
    'Environment=HOME=/var/lib/odmoe XDG_STATE_HOME=/var/lib XDG_DATA_HOME=/var/lib XDG_CACHE_HOME=/var/cache',
    'Environment=CUDA_CACHE_PATH=/var/cache/odmoe/cuda',
  ];
}

/**
 * Only the system's manager reads what its daemon may not. Its second line is the credential where the file has been removed, because the daemon
 * has joined.
 */
function tokenLines(path: string, scope: ServiceScope): string[] {
  if (scope === 'user') return [`Environment="CREDENTIALS_DIRECTORY=${escapedWord(dirname(path))}"`];
  return [
    `LoadCredential=${TOKEN_CREDENTIAL}:${path.replaceAll('%', '%%')}`,
    `SetCredential=${TOKEN_CREDENTIAL}:${NO_TOKEN}`,
  ];
}

function limitLines({ memoryBytes }: ServiceUnit): string[] {
  return [
    ...(memoryBytes === null ? [] : [`MemoryMax=${memoryBytes}`]),
    'OOMScoreAdjust=300',
    'LimitNOFILE=65536',
    'LimitMEMLOCK=infinity',
    'LimitCORE=0',
  ];
}

/** The hardening that the service manager of a user can enforce without privileges. */
const GUARDS_OF_EVERYBODY = [
  'UMask=0077',
  'NoNewPrivileges=yes',
  'RestrictRealtime=yes',
  'RestrictSUIDSGID=yes',
  'RestrictNamespaces=yes',
  'LockPersonality=yes',
  // Netlink: mDNS asks for the list of interfaces.
  'RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK',
  'SystemCallArchitectures=native',
  'SystemCallErrorNumber=EPERM',
  // @system-service has io_uring from systemd 253 on only.
  'SystemCallFilter=@system-service io_uring_setup io_uring_enter io_uring_register',
];

const GUARDS_OF_THE_SYSTEM = [
  'CapabilityBoundingSet=',
  'AmbientCapabilities=',
  'ProtectSystem=strict',
  'PrivateTmp=yes',
  'PrivateMounts=yes',
  'ProtectKernelTunables=yes',
  'ProtectKernelModules=yes',
  'ProtectKernelLogs=yes',
  'ProtectControlGroups=yes',
  'ProtectHostname=yes',
  'ProtectProc=invisible',
  'RemoveIPC=yes',
  'KeyringMode=private',
  'SystemCallFilter=~@privileged',
];

function guardLines({ scope, readsHomes, fetchesInto, deviceGroups }: ServiceUnit): string[] {
  if (scope === 'user') return GUARDS_OF_EVERYBODY;
  return [
    ...GUARDS_OF_EVERYBODY,
    ...GUARDS_OF_THE_SYSTEM,
    `ProtectHome=${readsHomes ? 'read-only' : 'yes'}`,
    ...(fetchesInto === null ? [] : [`ReadWritePaths="-${escapedWord(fetchesInto)}"`]),
    ...(deviceGroups.length === 0 ? [] : [`SupplementaryGroups=${deviceGroups.join(' ')}`]),
  ];
}

/** A word of a command line as systemd reads it (systemd.service, "Command lines"). Pure. */
export function quotedWord(word: string): string {
  return /^[\w./:=,@+-]+$/.test(word) ? word : `"${escapedWord(word).replaceAll('$', '$$$$')}"`;
}

/** The inside of a quoted word, where "%" begins a specifier. */
function escapedWord(word: string): string {
  return word
    .replaceAll('\\', '\\\\')
    .replaceAll('"', '\\"')
    .replaceAll('\n', '\\n')
    .replaceAll('\t', '\\t')
    .replaceAll('%', '%%');
}

/** The daemon's flags in a unit that unitText has made. Pure. */
export function flagsOfUnit(text: string): string[] {
  const command = /^ExecStart=(.*)$/m.exec(text)?.[1] ?? '';
  const words = [...command.matchAll(/"((?:[^"\\]|\\.)*)"|(\S+)/g)].map(([, quoted, plain]) =>
    quoted === undefined ? (plain ?? '') : unescapedWord(quoted),
  );
  // Node, the program and the role stand before them.
  return words.slice(3);
}

const ESCAPES: Record<string, string> = { '\\n': '\n', '\\t': '\t', '%%': '%', $$: '$' };

function unescapedWord(text: string): string {
  return text.replace(/\\.|%%|\$\$/g, (escape) => ESCAPES[escape] ?? escape.slice(1));
}

/** The file by which systemd-sysusers makes the user of the services. */
export const SYSUSERS_TEXT = `# Written by odmoe service install.\nu ${SERVICE_USER} - "odmoe daemons" /var/lib/odmoe\n`;
