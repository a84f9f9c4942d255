import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/** What signs requests, when the round is given keys: -Dround.access_key, -Dround.secret_key. */
final class Keys {
    private Keys() {
    }

    /** A hook that does what another does, if any, and then signs: a client takes one hook only. */
    static RPCHook hook(RPCHook other) {
        String accessKey = System.getProperty("round.access_key");
        if (accessKey == null) {
            return other;
        }
        RPCHook signs = new AclClientRPCHook(
            new SessionCredentials(accessKey, System.getProperty("round.secret_key")));
        return other == null ? signs : new Both(other, signs);
    }

    private record Both(RPCHook first, RPCHook second) implements RPCHook {
        @Override
        public void doBeforeRequest(String address, RemotingCommand request) {
            first.doBeforeRequest(address, request);
            second.doBeforeRequest(address, request);
        }

        @Override
        public void doAfterResponse(String address, RemotingCommand request,
            RemotingCommand response) {
            first.doAfterResponse(address, request, response);
            second.doAfterResponse(address, request, response);
        }
    }
}
