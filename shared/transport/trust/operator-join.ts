/** The variable with a token by which daemons and operators join. Unlike an argument, it is not in the list of processes. */
export const JOIN_TOKEN_VARIABLE = 'ODMOE_JOIN_TOKEN';

/** The command by which a person becomes an operator on his own machine. It keeps the token out of the list of processes. */
export function operatorJoinCommand(id = 'NAME', token = 'TOKEN'): string {
  return `${JOIN_TOKEN_VARIABLE}=${token} odmoe operator join --id ${id}`;
}
