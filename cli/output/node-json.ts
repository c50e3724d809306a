import type { NodeStatus, RoleName } from '../../shared/wire/messages.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';

/** For example "main", "shadow" or "worker" for ROLE_MAIN and so on. */
export function shortRole(role: RoleName): string {
  return role.slice('ROLE_'.length).toLowerCase();
}

/** One entry of "nodes" in --json output: identity and counters side by side, keys in snake_case. */
export function nodeJson({ identity, ...counters }: NodeStatus): unknown {
  return snakeCaseKeys({ ...identity, role: shortRole(identity.role), ...counters });
}
