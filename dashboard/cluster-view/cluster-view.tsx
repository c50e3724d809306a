import type { JSX } from 'preact';

export function ClusterView(): JSX.Element {
  return <h1>Cluster</h1>;
}
