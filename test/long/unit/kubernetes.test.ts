import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import ts from 'typescript';
import { parse, parseAllDocuments } from 'yaml';
import { parseDaemonFlags } from '../../../engine/daemon/parse-daemon-flags.js';
import { packageRoot } from '../../../shared/base/files/package-root.js';
import { ROLES, type RoleSetting } from '../../../shared/settings/setting-choices.js';
import { defaultPort } from '../../../shared/settings/cluster-config.js';

const ROOT = packageRoot();
const DEPLOY = join(ROOT, 'deploy/k8s');
const CLASSES = readdirSync(join(DEPLOY, 'classes'));
/** The oldest minor version of kubectl whose kustomize knows `labels` and `patches` as they are used. */
const KUBECTL_MINOR = 27;

interface Container {
  name: string;
  command?: string[];
  args?: string[];
  env?: {
    name: string;
    value?: string;
    valueFrom?: Record<string, { name?: string; key?: string; optional?: boolean }>;
  }[];
  ports?: { name: string; containerPort: number }[];
  volumeMounts?: { name: string; mountPath: string }[];
  securityContext?: Record<string, unknown>;
  resources?: { limits?: Record<string, unknown> };
  startupProbe?: Probe;
  livenessProbe?: Probe;
  readinessProbe?: Probe;
}

interface Probe {
  exec?: { command: string[] };
}

interface Pod {
  containers: Container[];
  initContainers?: Container[];
  nodeSelector?: Record<string, string>;
  securityContext?: Record<string, unknown>;
  terminationGracePeriodSeconds?: number;
  volumes?: { name: string }[];
}

interface Manifest {
  apiVersion: string;
  kind: string;
  metadata: { name: string; namespace?: string; labels?: Record<string, string> };
  spec: {
    replicas?: number;
    serviceName?: string;
    clusterIP?: string;
    publishNotReadyAddresses?: boolean;
    maxUnavailable?: number;
    selector: Record<string, string> & { matchLabels: Record<string, string> };
    ports: { name: string; port: number; targetPort: string }[];
    template: { metadata: { labels: Record<string, string> }; spec: Pod };
    volumeClaimTemplates: { metadata: { name: string } }[];
  };
}

/** The reason why the manifests cannot be rendered here; null: they can. */
function obstacle(): string | null {
  const { status, stdout } = spawnSync('kubectl', ['version', '--client', '-o', 'json'], { encoding: 'utf8' });
  if (status !== 0) return 'kubectl is not installed here';
  const version = JSON.parse(stdout) as { clientVersion: { minor: string } };
  const minor = Number.parseInt(version.clientVersion.minor, 10);
  return minor < KUBECTL_MINOR ? `kubectl 1.${minor} is older than 1.${KUBECTL_MINOR}` : null;
}

/** The text that `kubectl kustomize` makes of a folder. */
function rendered(folder: string): string {
  const { status, stdout, stderr } = spawnSync('kubectl', ['kustomize', folder], { encoding: 'utf8' });
  assert.deepEqual([status, stderr], [0, ''], folder);
  return stdout;
}

function manifestsOf(folder: string): Manifest[] {
  return parseAllDocuments(rendered(folder)).map((document) => document.toJS() as Manifest);
}

const namesOf = (manifests: readonly Manifest[]): string[] =>
  manifests.map(({ kind, metadata }) => `${kind} ${metadata.name}`).sort();

/** The arguments as the kubelet hands them on: it replaces $(NAME) by the value of the variable. */
function expanded({ args = [], env = [] }: Container, pod: string): string[] {
  const values = new Map(env.map(({ name, value }) => [name, value]));
  values.set('POD_NAME', pod).set('POD_NAMESPACE', 'odmoe');
  return args.map((argument) =>
    argument.replaceAll(
      /\$\((\w+)\)/g,
      (_, name: string) => values.get(name) ?? assert.fail(`$(${name}) has no value`),
    ),
  );
}

/** TypeScript's complaints about the manifests as values of the types of the Kubernetes API. */
function typeFaults(manifests: readonly unknown[]): string[] {
  const folder = mkdtempSync(join(tmpdir(), 'odmoe-manifests-'));
  try {
    const lines = manifests.map((manifest, index) => {
      const { apiVersion, kind } = manifest as Manifest;
      const module = apiVersion.includes('/') ? apiVersion : `core/${apiVersion}`;
      return `import type { ${kind} as Kind${index} } from 'kubernetes-types/${module}';\nexport const m${index}: Kind${index} = ${JSON.stringify(manifest)};\n`;
    });
    const path = join(folder, 'manifests.ts');
    writeFileSync(path, lines.join(''));
    const program = ts.createProgram([path], {
      strict: true,
      noEmit: true,
      target: ts.ScriptTarget.ES2022,
      module: ts.ModuleKind.ESNext,
      moduleResolution: ts.ModuleResolutionKind.Bundler,
      types: [],
      paths: { 'kubernetes-types/*': [join(ROOT, 'node_modules/kubernetes-types/*')] },
    });
    return ts
      .getPreEmitDiagnostics(program)
      .map(({ messageText }) => ts.flattenDiagnosticMessageText(messageText, '\n'));
  } finally {
    rmSync(folder, { recursive: true });
  }
}

describe('the manifests for Kubernetes', () => {
  let all: Manifest[];
  const classes = new Map<string, Manifest>();
  const one = (kind: string, name: string): Manifest =>
    all.find((manifest) => manifest.kind === kind && manifest.metadata.name === name) ?? assert.fail(name);
  const setOf = (name: string): Manifest => one('StatefulSet', name);
  const daemons = (): Manifest[] => [...all.filter(({ kind }) => kind === 'StatefulSet'), ...classes.values()];
  const podOf = ({ spec }: Manifest): Pod => spec.template.spec;

  before(function () {
    const reason = obstacle();
    if (reason !== null) {
      console.log(`      skipped: ${reason}`);
      this.skip();
    }
    all = manifestsOf(join(DEPLOY, 'cluster'));
    for (const name of CLASSES) {
      const [set, ...others] = manifestsOf(join(DEPLOY, 'classes', name));
      assert.equal(others.length, 0);
      classes.set(name, set ?? assert.fail(name));
    }
  });

  it('are a whole cluster', () => {
    assert.deepEqual(namesOf(all), [
      'Namespace odmoe',
      'PodDisruptionBudget odmoe-workers',
      'Service odmoe',
      'Service odmoe-http',
      'StatefulSet odmoe-main',
      'StatefulSet odmoe-shadow',
      'StatefulSet odmoe-worker-cpu',
    ]);
    assert.deepEqual(CLASSES.sort(), ['cpu', 'jetson', 'nvidia']);
    for (const { kind, metadata } of all) if (kind !== 'Namespace') assert.equal(metadata.namespace, 'odmoe');
  });

  it('are of the types of the Kubernetes API', function () {
    if (!existsSync(join(ROOT, 'node_modules/kubernetes-types'))) {
      console.log('      skipped: kubernetes-types is not installed here');
      this.skip();
    }
    this.timeout(300_000);
    assert.deepEqual(typeFaults([...all, ...classes.values()]), []);
    const service = structuredClone(one('Service', 'odmoe'));
    Object.assign(service.spec.ports[0] ?? {}, { port: '7600' });
    assert.match(typeFaults([service]).join(), /not assignable to type 'number'/);
    const budget = structuredClone(one('PodDisruptionBudget', 'odmoe-workers'));
    Object.assign(budget.spec, { maxUnavailabel: 1 });
    assert.match(typeFaults([budget]).join(), /maxUnavailabel/);
  });

  it('find one another: each daemon is in the records of its role, before it is ready, at the port that it listens on', () => {
    const { spec } = one('Service', 'odmoe');
    assert.deepEqual([spec.clusterIP, spec.publishNotReadyAddresses], ['None', true]);
    for (const role of ROLES) {
      const port = spec.ports.find(({ name }) => name === role);
      assert.deepEqual([port?.port, port?.targetPort], [defaultPort(role), role]);
    }
    for (const set of daemons()) {
      const [daemon] = podOf(set).containers;
      const role = (daemon?.name ?? '') as RoleSetting;
      assert.equal(set.spec.serviceName, 'odmoe');
      const labels = set.spec.template.metadata.labels;
      for (const [key, value] of Object.entries(spec.selector)) assert.equal(labels[key], value, set.metadata.name);
      assert.equal(daemon?.ports?.find(({ name }) => name === role)?.containerPort, defaultPort(role));
    }
  });

  it('give daemons arguments that they take, with the name of the pod as id and the name of the service', () => {
    for (const set of daemons()) {
      const [daemon] = podOf(set).containers;
      assert.ok(daemon);
      const [role, ...args] = expanded(daemon, `${set.metadata.name}-0`);
      assert.equal(role, daemon.name);
      const request = parseDaemonFlags(role as RoleSetting, args);
      assert.ok(request.kind === 'run');
      const { id, cluster, discovery, listenPort, device } = request.settings;
      assert.deepEqual([id, cluster], [`${set.metadata.name}-0`, 'home']);
      assert.deepEqual([discovery.provider, discovery.name], ['dns', 'odmoe.odmoe.svc.cluster.local']);
      assert.equal(listenPort, defaultPort(role as RoleSetting));
      const isGpu = ['nvidia', 'jetson'].some((name) => set.metadata.name.endsWith(name));
      if (role === 'worker') assert.equal(device.backend, isGpu ? 'cuda' : 'cpu');
    }
  });

  it('have one main and one shadow, and workers of classes that select nobody else', () => {
    assert.deepEqual([setOf('odmoe-main').spec.replicas, setOf('odmoe-shadow').spec.replicas], [1, 1]);
    const selectors = [...classes].map(([name, { spec, metadata }]) => {
      assert.equal(metadata.name, `odmoe-worker-${name}`);
      assert.equal(spec.template.metadata.labels['odmoe.dev/device-class'], name);
      return spec.selector.matchLabels['odmoe.dev/device-class'];
    });
    assert.deepEqual(selectors.sort(), CLASSES);
    const gpus = podOf(classes.get('nvidia') ?? assert.fail()).containers[0]?.resources?.limits;
    assert.deepEqual(gpus, { 'nvidia.com/gpu': '1' });
    const budget = one('PodDisruptionBudget', 'odmoe-workers').spec;
    assert.equal(budget.maxUnavailable, 1);
    for (const { spec } of classes.values())
      for (const [key, value] of Object.entries(budget.selector.matchLabels))
        assert.equal(spec.template.metadata.labels[key], value);
  });

  it('run as nobody in particular, with keys on a volume, secrets by reference and probes by odmoe health', () => {
    for (const set of daemons()) {
      const pod = podOf(set);
      assert.deepEqual([pod.securityContext?.['runAsNonRoot'], pod.securityContext?.['runAsUser']], [true, 10_001]);
      const [daemon] = pod.containers;
      for (const probe of [daemon?.startupProbe, daemon?.livenessProbe, daemon?.readinessProbe])
        assert.deepEqual(probe?.exec?.command, ['odmoe', 'health']);
      const claims = set.spec.volumeClaimTemplates.map(({ metadata }) => metadata.name);
      const volumes = [...claims, ...(pod.volumes ?? []).map(({ name }) => name)];
      for (const container of [...pod.containers, ...(pod.initContainers ?? [])]) {
        assert.equal(container.securityContext?.['readOnlyRootFilesystem'], true);
        assert.equal(container.securityContext?.['allowPrivilegeEscalation'], false);
        for (const { name } of container.volumeMounts ?? [])
          assert.ok(volumes.includes(name), `${container.name} ${name}`);
        const data = container.volumeMounts?.find(({ name }) => name === 'data');
        assert.equal(data?.mountPath, '/var/lib/odmoe');
      }
      const secrets = (daemon?.env ?? []).flatMap(({ name, valueFrom }) =>
        valueFrom?.['secretKeyRef'] === undefined ? [] : [{ name, ...valueFrom['secretKeyRef'] }],
      );
      const expected = {
        main: [{ name: 'odmoe-api-keys', key: 'keys' }],
        shadow: [{ name: 'odmoe-join', key: 'shadow', optional: true }],
        worker: [{ name: 'odmoe-join', key: 'worker', optional: true }],
      }[daemon?.name ?? ''];
      assert.deepEqual(secrets, expected);
    }
  });

  it('gives main more time than its answers may take at the end', () => {
    assert.ok((podOf(setOf('odmoe-main')).terminationGracePeriodSeconds ?? 0) >= 40);
  });
});

interface ComposeService {
  command: string[];
  user?: string;
  read_only?: boolean;
  depends_on?: Record<string, { condition: string }>;
  networks?: { default: { aliases: string[] } };
  volumes: string[];
  stop_grace_period?: string;
}

describe('compose.yaml', () => {
  const { services, volumes } = parse(readFileSync(join(ROOT, 'compose.yaml'), 'utf8'), { merge: true }) as {
    services: Record<string, ComposeService>;
    volumes: Record<string, null>;
  };
  const daemons = Object.entries(services).filter(([, { command }]) =>
    (ROLES as readonly string[]).includes(command[0] ?? ''),
  );

  it('is a whole cluster, whose daemons take their arguments and find one another by their aliases', () => {
    const roles = daemons.map(([name, { command, networks }]) => {
      const [role = '', ...args] = command;
      const request = parseDaemonFlags(role as RoleSetting, args);
      assert.ok(request.kind === 'run');
      const { id, cluster, discovery, listenPort } = request.settings;
      assert.deepEqual([id, cluster, discovery.provider, discovery.name], [name, 'home', 'dns', 'odmoe']);
      assert.deepEqual(networks?.default.aliases, [`${role}.odmoe`]);
      assert.equal(listenPort, defaultPort(role as RoleSetting));
      return role;
    });
    assert.deepEqual(roles, ['main', 'shadow', 'worker', 'worker']);
  });

  it('keeps keys on volumes that are there, one for each daemon, and starts in an order that ends', () => {
    const states = daemons.map(([, { volumes: mounts }]) => mounts.find((one) => one.endsWith(':/var/lib/odmoe')));
    assert.equal(new Set(states).size, daemons.length);
    for (const { volumes: mounts, depends_on: before, read_only: readOnly } of Object.values(services)) {
      assert.equal(readOnly, true);
      for (const mount of mounts) {
        const source = mount.split(':')[0] ?? '';
        assert.ok(source in volumes || source.startsWith('${ODMOE_CHECKPOINT'), source);
      }
      for (const name of Object.keys(before ?? {})) assert.ok(name in services, name);
    }
    assert.deepEqual(Object.keys(services['token']?.depends_on ?? {}), ['main']);
    for (const [name, { depends_on: before }] of daemons)
      assert.deepEqual(Object.keys(before ?? {}), [name === 'main' ? 'pack' : 'token']);
  });
});
